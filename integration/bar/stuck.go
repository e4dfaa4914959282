package bar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"
	"time"

	"leasehold.dev/cli/local"
	"leasehold.dev/integration/driver"
	"leasehold.dev/integration/scenario"
	"leasehold.dev/model/canary"
	"leasehold.dev/protos/errs"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

const (
	stuckFor      = 60 * time.Second
	stuckPulls    = 4
	stuckP99To    = 1.1
	stuckLongTo   = 5.0
	stuckTokens   = 1200  // of a stream, whose first ones are not looked at
	stuckWarm     = 20    // tokens
	stuckQuestion = 200   // tokens
	stuckPrompt   = 20000 // tokens of a transfer that gets stuck
)

// stuck stops a prefill worker and its broker in the middle of transfers to a decode worker that serves other streams, and
// compares their steps with those before.
func (e *Env) stuck(ctx context.Context, s scenario.Setup, fig map[string]any) (met bool, err error) {
	st, err := scenario.Open(ctx, s, func(c *local.Config) {
		c.Promise = stuckPrompt + canary.Answer
		c.Brokers = []local.Broker{{Name: "broker-p", Pages: 1600, Args: []string{"-check-share=0.05"}}, {Name: "broker-d", Pages: 2400, Args: []string{"-check-share=0.05"}}}
	})
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	met = true
	for _, m := range []meshv1.Mover{meshv1.Mover_MOVER_SHM, meshv1.Mover_MOVER_GRPC} {
		before, err := e.steps(ctx, st, stuckFor)
		if err != nil {
			return false, err
		}
		during, err := e.stepsBeside(ctx, st, m)
		if err != nil {
			return false, err
		}
		p99, longest := quantile(during, 0.99)/quantile(before, 0.99), quantile(during, 1)/quantile(before, 1)
		key := "stuck_peer_" + m.String()
		fig[key] = map[string]any{"steps_before": len(before), "steps_during": len(during), "p99_before_us": quantile(before, 0.99),
			"p99_during_us": quantile(during, 0.99), "p99_ratio": round3(p99), "p99_at_most": stuckP99To, "longest_before_us": quantile(before, 1),
			"longest_during_us": quantile(during, 1), "longest_ratio": round3(longest), "longest_at_most": stuckLongTo}
		e.sayf("bench-ttft: %s: %v", key, fig[key])
		met = met && p99 <= stuckP99To && longest <= stuckLongTo
	}
	return met, nil
}

// stepsBeside is steps while transfers hang: the peer that sends is stopped, and continued at the end.
func (e *Env) stepsBeside(ctx context.Context, st *scenario.Stage, m meshv1.Mover) (took []float64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, stuckPulls)
	for range stuckPulls {
		go func() {
			_, err := ask(ctx, st, stuckPrompt, m)
			ended <- err
		}()
	}
	if err := e.someArrived(ctx, st, ended); err != nil {
		return nil, err
	}
	if err := signal(st, syscall.SIGSTOP); err != nil {
		return nil, err
	}
	took, err = e.steps(ctx, st, stuckFor)
	err = errors.Join(err, signal(st, syscall.SIGCONT))
	cancel()
	for range stuckPulls {
		if e := <-ended; e == nil {
			err = errors.Join(err, errors.New("a transfer ended well although its sender was stopped"))
		}
	}
	end, stop := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer stop()
	return took, errors.Join(err, st.Baseline(end, "broker-p", "broker-d"))
}

// signal goes to all that the peer's machine would run: prefill's work would take this one's cores from decode.
func signal(st *scenario.Stage, s syscall.Signal) error {
	return errors.Join(st.Process("prefill/prefill-0").Signal(s), st.Process("kvbroker/broker-p").Signal(s))
}

// someArrived waits until pages of a transfer are at decode's broker. None may end meanwhile.
func (e *Env) someArrived(ctx context.Context, st *scenario.Stage, ended <-chan error) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var early error
	err := scenario.Until(ctx, func() error {
		select {
		case err := <-ended:
			early = fmt.Errorf("a transfer has ended before its sender was stopped: %w", err)
			return nil
		default:
		}
		d, err := st.Describe(ctx, "broker-d")
		if err == nil && d.Pool.Staged == 0 {
			err = errors.New("no page of a transfer has arrived")
		}
		return err
	})
	return errors.Join(early, err)
}

// steps decodes streams, one after the other, for so long, and returns the microseconds between tokens.
func (e *Env) steps(ctx context.Context, st *scenario.Stage, long time.Duration) (took []float64, err error) {
	for began := time.Now(); time.Since(began) < long; {
		one, err := stream(ctx, st)
		if err != nil {
			return nil, err
		}
		took = append(took, one...)
	}
	return took, nil
}

// stream decodes one answer, whose prompt decode computes itself.
func stream(ctx context.Context, st *scenario.Stage) ([]float64, error) {
	ticket, _, err := st.Driver.Admit(driver.Request{Tenant: "others", IDs: promptFor(st, stuckQuestion), MaxNew: stuckTokens, Decode: "decode-0"})
	if err != nil {
		return nil, err
	}
	s, err := st.Driver.Decoder("decode-0").Generate(ctx, &decodev1.GenerateRequest{Admission: ticket, TokenIds: promptFor(st, stuckQuestion),
		Sampling: &decodev1.Sampling{IgnoreEos: true}})
	if err != nil {
		return nil, errs.FromStatus(err)
	}
	var took []float64
	var last time.Time
	for n := 0; ; {
		msg, err := s.Recv()
		if errors.Is(err, io.EOF) {
			if len(took) == 0 {
				return nil, fmt.Errorf("a stream of %d tokens", n)
			}
			return took, nil
		}
		if err != nil {
			return nil, errs.FromStatus(err)
		}
		tokens := msg.GetTokens().GetTokens()
		if len(tokens) == 0 {
			continue
		}
		now := time.Now()
		if n += len(tokens); n > stuckWarm {
			took = append(took, float64(now.Sub(last).Microseconds()))
		}
		last = now
	}
}

// quantile q of v; 1 is the greatest.
func quantile(v []float64, q float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[min(len(v)-1, int(q*float64(len(v))))]
}
