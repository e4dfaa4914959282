package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"leasehold.dev/cli/local"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
)

// Scenario is one thing that goes wrong. Run returns figures, and an error that says what should have been.
type Scenario struct {
	Name string
	Run  func(context.Context, Setup) (map[string]any, error)
}

// errorWithin is how soon a stream must say that its worker is lost.
const errorWithin = time.Second

// Failures kills each process of the mesh, before the Completion and after.
var Failures = []Scenario{
	{"decode killed in mid-stream", killedMidStream("decode/decode-0", "broker-p", "broker-d")},
	{"decode's broker killed in mid-stream", killedMidStream("kvbroker/broker-d", "broker-p")},
	{"prefill killed before the Completion, another pair exists", killedBefore("prefill", true)},
	{"prefill's broker killed before the Completion, another pair exists", killedBefore("kvbroker", true)},
	{"prefill killed before the Completion, no other pair", killedBefore("prefill", false)},
	{"prefill's broker killed before the Completion, no other pair", killedBefore("kvbroker", false)},
	{"prefill killed after the Completion", killedAfter("prefill/prefill-0", "broker-p", "broker-d")},
	{"prefill's broker killed after the Completion", killedAfter("kvbroker/broker-p", "broker-d")},
}

// longAsk streams long enough to be hit in the middle.
func longAsk() Ask {
	return Ask{Content: "Tell me a long story about the sea.", MaxTokens: 600, Stream: true, Extra: map[string]any{"temperature": 1, "seed": 7, "logit_bias": map[string]int{"2": -100}}}
}

// after runs f once, at the n-th content of a stream.
func after(n int, f func() error) (seen func(Answer), result func() error) {
	count, err := 0, errors.New("the stream ended before")
	return func(Answer) {
		if count++; count == n {
			err = f()
		}
	}, func() error { return err }
}

func killedMidStream(victim string, survivors ...string) func(context.Context, Setup) (map[string]any, error) {
	return func(ctx context.Context, s Setup) (map[string]any, error) {
		st, err := Open(ctx, s, nil)
		if err != nil {
			return nil, err
		}
		defer st.Close()
		var killed time.Time
		seen, kill := after(5, func() error {
			killed = time.Now()
			return st.Process(victim).Kill()
		})
		a, err := st.Chat(ctx, longAsk(), seen)
		if err := errors.Join(err, kill()); err != nil {
			return nil, err
		}
		if a.Err == nil || a.Completed || a.Finish != "" {
			return nil, fmt.Errorf("the stream ended with error %v, finish_reason %q, [DONE] %v; want an error event alone", a.Err, a.Finish, a.Completed)
		}
		late := a.ErrorAt.Sub(killed)
		if late > errorWithin {
			return nil, fmt.Errorf("the error event came %v after the kill, want at most %v", late, errorWithin)
		}
		return map[string]any{"error_ms": late.Milliseconds()}, recovers(ctx, st, victim, survivors...)
	}
}

// recovers checks that the survivors' pools come back to zero use and that the mesh answers again after a restart.
func recovers(ctx context.Context, st *Stage, victim string, survivors ...string) error {
	wait, cancel := context.WithTimeoutCause(ctx, 15*time.Second, errors.New("15 s are over"))
	defer cancel()
	if err := st.Baseline(wait, survivors...); err != nil {
		return fmt.Errorf("after the kill: %w", err)
	}
	p := st.Process(victim)
	if err := p.Start(); err != nil {
		return err
	}
	if _, err := p.Addr(ctx); err != nil {
		return err
	}
	return answers(ctx, st)
}

// answers waits until a short request is answered whole.
func answers(ctx context.Context, st *Stage) error {
	wait, cancel := context.WithTimeoutCause(ctx, 20*time.Second, errors.New("20 s are over"))
	defer cancel()
	return Until(wait, func() error {
		a, err := st.Chat(wait, Ask{Content: "Say hello.", MaxTokens: 4}, nil)
		if err != nil {
			return err
		}
		if a.Err != nil {
			return errors.New(a.Err.String())
		}
		if !a.Completed || a.Text == "" {
			return fmt.Errorf("an empty answer: %+v", a)
		}
		return nil
	})
}

func twoPrefills(c *local.Config) {
	c.Brokers = append(c.Brokers, local.Broker{Name: "broker-q", Pages: 160})
	c.Prefills = append(c.Prefills, local.Worker{ID: "prefill-1", Broker: "broker-q"})
}

func killedBefore(service string, another bool) func(context.Context, Setup) (map[string]any, error) {
	return func(ctx context.Context, s Setup) (map[string]any, error) {
		st, err := Open(ctx, s, func(c *local.Config) {
			c.Decodes[0].Args = []string{"-self-prefill=-1"} // decode alone would be another way
			if another {
				twoPrefills(c)
			}
		})
		if err != nil {
			return nil, err
		}
		defer st.Close()
		if err := st.AllUp(ctx); err != nil {
			return nil, err
		}
		type result struct {
			a   Answer
			err error
		}
		done := make(chan result, 1)
		go func() {
			a, err := st.Chat(ctx, Ask{Content: Words(3000), MaxTokens: 8, Stream: true}, nil)
			done <- result{a, err}
		}()
		used, err := writingPrefill(ctx, st)
		if err != nil {
			return nil, err
		}
		victim := "prefill/" + used.ID
		if service == "kvbroker" {
			victim = "kvbroker/" + used.Broker
		}
		if err := st.Process(victim).Kill(); err != nil {
			return nil, err
		}
		killed := time.Now()
		r := <-done
		if r.err != nil {
			return nil, r.err
		}
		fig := map[string]any{"ended_ms": time.Since(killed).Milliseconds()}
		switch {
		case another && (!r.a.Completed || r.a.Err != nil):
			return fig, fmt.Errorf("no answer through the other pair: %+v", r.a)
		case !another && (r.a.Err == nil || r.a.Text != ""):
			return fig, fmt.Errorf("no error although there is no other pair: %+v", r.a)
		}
		var survivors []string
		for _, b := range st.Brokers {
			if victim != "kvbroker/"+b.Name {
				survivors = append(survivors, b.Name)
			}
		}
		return fig, recovers(ctx, st, victim, survivors...)
	}
}

// writingPrefill waits until some prefill worker has rows to write and says which.
func writingPrefill(ctx context.Context, st *Stage) (local.Worker, error) {
	var used local.Worker
	wait, cancel := context.WithTimeoutCause(ctx, 20*time.Second, errors.New("20 s are over"))
	defer cancel()
	err := Until(wait, func() error {
		for _, w := range st.Prefills {
			d, err := st.Describe(wait, w.Broker)
			if err != nil {
				return err
			}
			for _, l := range d.Leases {
				if l.Role == brokerv1.Role_ROLE_SOURCE && l.Worker == w.ID {
					used = w
					return nil
				}
			}
		}
		return errors.New("no source lease yet")
	})
	return used, err
}

func killedAfter(victim string, survivors ...string) func(context.Context, Setup) (map[string]any, error) {
	return func(ctx context.Context, s Setup) (map[string]any, error) {
		st, err := Open(ctx, s, nil)
		if err != nil {
			return nil, err
		}
		defer st.Close()
		seen, kill := after(3, func() error { return st.Process(victim).Kill() })
		a, err := st.Chat(ctx, Ask{Content: "Tell me about hills.", MaxTokens: 120, Stream: true, Extra: map[string]any{"logit_bias": map[string]int{"2": -100}}}, seen)
		if err := errors.Join(err, kill()); err != nil {
			return nil, err
		}
		if !a.Completed || a.Err != nil || a.Finish != "length" {
			return nil, fmt.Errorf("the stream was harmed: error %v, finish_reason %q, [DONE] %v", a.Err, a.Finish, a.Completed)
		}
		return map[string]any{"events": a.Events}, recovers(ctx, st, victim, survivors...)
	}
}
