package hosts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"leasehold.dev/cli/local"
	"leasehold.dev/integration/driver"
	"leasehold.dev/integration/scenario"
	"leasehold.dev/integration/scenario/stagetest"
	"leasehold.dev/model/canary"
	"leasehold.dev/protos/errs"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

const (
	promise   = 16384 // tokens
	long      = 4000  // tokens of a prompt that takes a while on a slow link
	short     = 300
	pageBytes = 64 * 512 // of 64 tokens of the canary model
)

// stage is a mesh on hosts: the first has decode and its broker, each further one a prefill worker and its own. The router,
// the registry and this process are at the switch.
type stage struct {
	*scenario.Stage
	net   *Network
	mover mover
	seed  atomic.Uint64
}

func open(t *testing.T, m mover, prefills int) *stage {
	t.Helper()
	s := &stage{net: network(t, 1+prefills), mover: m}
	s.Stage = stagetest.OpenCanary(t, promise, func(c *local.Config) {
		c.IP, c.HTTP = Switch, Switch+":0"
		c.Tenants["other"] = local.NewKey()
		c.Router = []string{"-retry-ratio", "0"} // a retry would hide what the first attempt said
		c.Brokers = []local.Broker{{Name: "broker-d", Pages: 600, Mover: m.process, Host: s.decode().Place()}}
		c.Decodes = []local.Worker{{ID: "decode-0", Broker: "broker-d", Args: []string{"-self-prefill=-1"}}}
		c.Prefills = nil
		for i := range prefills {
			broker := fmt.Sprintf("broker-p%d", i)
			c.Brokers = append(c.Brokers, local.Broker{Name: broker, Pages: 600, Mover: m.process, Host: s.prefill(i).Place()})
			c.Prefills = append(c.Prefills, local.Worker{ID: fmt.Sprintf("prefill-%d", i), Broker: broker})
		}
	})
	must(t, s.AllUp(t.Context()))
	return s
}

func (s *stage) decode() *Host       { return s.net.Hosts[0] }
func (s *stage) prefill(i int) *Host { return s.net.Hosts[1+i] }

// echo is a prompt of tenant 0 or 1, never the same twice.
func (s *stage) echo(t *testing.T, tenant, tokens int) canary.Echo {
	t.Helper()
	e, err := canary.New(tenant, tokens, s.seed.Add(1))
	must(t, err)
	return e
}

// post sends an echo as a tenant does.
func (s *stage) post(ctx context.Context, e canary.Echo) (scenario.Answer, error) {
	key := s.Tenants[[]string{"demo", "other"}[e.Tenant]]
	return s.Post(ctx, "/v1/completions", key, map[string]any{
		"model": s.Loaded.Name, "prompt": e.Tokens, "max_tokens": canary.Answer, "temperature": 0, "stream": true}, nil)
}

// ask is post, and wants the right answer.
func (s *stage) ask(t *testing.T, e canary.Echo) scenario.Answer {
	t.Helper()
	a, err := s.post(t.Context(), e)
	if v := canary.Judge(e, canary.Parse(a.Text)); err != nil || a.Err != nil || !a.Completed || !v.Exact() {
		t.Errorf("tenant %d: %v, %v, %v", e.Tenant, a.Err, v, err)
	}
	return a
}

// sound waits until a request is answered, which must be exact, and says how long that took. Until then only errors come.
func (s *stage) sound(t *testing.T, when string) time.Duration {
	t.Helper()
	start := time.Now()
	must(t, within(t.Context(), 20*time.Second, func(ctx context.Context) error {
		e := s.echo(t, 0, short)
		a, err := s.post(ctx, e)
		if err != nil {
			return err
		}
		if a.Err != nil && a.Text == "" {
			return fmt.Errorf("a request %s: %v", when, a.Err)
		}
		if v := canary.Judge(e, canary.Parse(a.Text)); a.Err != nil || !a.Completed || !v.Exact() {
			t.Errorf("a request %s: %v, %v", when, v, a.Err)
		}
		return nil
	}))
	return time.Since(start)
}

// asked is a tenant's request that runs beside the test.
type asked struct {
	done chan struct{}
	a    scenario.Answer
	err  error
}

func (s *stage) asking(t *testing.T, e canary.Echo) *asked {
	w := &asked{done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.a, w.err = s.post(t.Context(), e)
	}()
	t.Cleanup(func() { <-w.done })
	return w
}

// red waits for the end: an error object and nothing else.
func (w *asked) red(t *testing.T) {
	t.Helper()
	<-w.done
	if w.err != nil || w.a.Err == nil || w.a.Completed || w.a.Finish != "" || w.a.Text != "" || w.a.Err.Status < 500 {
		t.Errorf("the tenant got error %v, %d bytes of text, finish_reason %q, [DONE] %v; %v", w.a.Err, len(w.a.Text), w.a.Finish, w.a.Completed, w.err)
	}
}

// held wants a lease at a broker all the time until then, or until w has ended: whoever reads its pages may still do so.
func (s *stage) held(t *testing.T, broker string, w *running, until time.Time) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for time.Now().Before(until) {
		select {
		case <-w.done:
			return
		case <-tick.C:
		}
		if d, err := s.Describe(t.Context(), broker); err != nil || len(d.Leases) == 0 {
			t.Errorf("%s has let go of a transfer whose end nobody knows: %v, %v", broker, d.GetPool(), err)
			return
		}
	}
}

// within repeats f until it returns nil, for so long.
func within(ctx context.Context, d time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, d, fmt.Errorf("%v are over", d))
	defer cancel()
	return scenario.Until(ctx, func() error { return f(ctx) })
}

// settled waits until the pools are as at the start: those of the brokers named, or all.
func (s *stage) settled(t *testing.T, brokers ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Second, errors.New("20 s are over"))
	defer cancel()
	if len(brokers) == 0 {
		for _, b := range s.Brokers {
			brokers = append(brokers, b.Name)
		}
	}
	must(t, s.Baseline(ctx, brokers...))
}

// request is an echo by a prefill worker, as the router would send it.
func (s *stage) request(e canary.Echo, prefill int, deadline time.Duration) driver.Request {
	return driver.Request{Tenant: []string{"demo", "other"}[e.Tenant], IDs: e.Tokens, MaxNew: canary.Answer,
		Prefill: fmt.Sprintf("prefill-%d", prefill), Decode: "decode-0",
		Change: func(a *meshv1.Admission) {
			a.Mover, a.DeadlineUnixMs = s.mover.is, time.Now().Add(deadline).UnixMilli()
		}}
}

// running is a request that runs beside the test.
type running struct {
	start time.Time
	done  chan struct{}
	out   driver.Outcome
	err   error
	took  time.Duration
}

// start drives r and returns once so many bytes have left its prefill worker's host: the Pull is in its middle.
func (s *stage) start(t *testing.T, r driver.Request, from *Host, bytes uint64) *running {
	t.Helper()
	w := &running{start: time.Now(), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.out, w.err = s.Driver.Run(t.Context(), r)
		w.took = time.Since(w.start)
	}()
	t.Cleanup(func() { <-w.done })
	moving(t, from, bytes, func() error {
		select {
		case <-w.done:
			return fmt.Errorf("the request has ended before its Pull was in its middle: %w", w.err)
		default:
			return nil
		}
	})
	return w
}

// red waits for a request's end: an error of one of these kinds, without a token.
func (w *running) red(t *testing.T, kinds ...errs.Kind) {
	t.Helper()
	<-w.done
	if k := errs.KindOf(w.err); w.err == nil || !slices.Contains(kinds, k) {
		t.Errorf("the request ended with %v (kind %v), want one of %v", w.err, k, kinds)
	}
	if len(w.out.Tokens) > 0 || w.out.Finished != nil {
		t.Errorf("%d tokens came out", len(w.out.Tokens))
	}
}

// exact waits for a request's end: the right answer.
func (w *running) exact(t *testing.T, e canary.Echo) {
	t.Helper()
	<-w.done
	if v := canary.Judge(e, w.out.Tokens); w.err != nil || !v.Exact() {
		t.Errorf("tenant %d: %v, %v", e.Tenant, v, w.err)
	}
}

// moving waits until so many more bytes have left a host, while ok says so.
func moving(t *testing.T, from *Host, bytes uint64, ok func() error) {
	t.Helper()
	before, _, err := from.Bytes()
	must(t, err)
	must(t, within(t.Context(), 20*time.Second, func(context.Context) error {
		must(t, ok())
		now, _, err := from.Bytes()
		if err == nil && now-before < bytes {
			err = fmt.Errorf("%d bytes are on their way, want %d", now-before, bytes)
		}
		return err
	}))
}
