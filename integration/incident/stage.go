package incident

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"leasehold.dev/cli/local"
	"leasehold.dev/integration/faultkit"
	"leasehold.dev/integration/scenario"
	"leasehold.dev/model/canary"
	"leasehold.dev/protos/fault"
)

const (
	prefill0 = "prefill/prefill-0"
	decode0  = "decode/decode-0"
)

// stage is the mesh of one act.
type stage struct {
	*faultkit.Stage
	size
	say  func(string, ...any)
	seed uint64
}

func tenant(i int) string { return fmt.Sprintf("tenant-%d", i) }

// open starts the mesh with what prefill promises. replays: every answer is run again. The lines of start are for the fault kit.
func open(ctx context.Context, s scenario.Setup, z size, prefillPromise int, replays bool, say func(string, ...any), start ...string) (*stage, error) {
	st, err := faultkit.Open(ctx, s, func(c *local.Config) {
		c.Promise = z.promise
		c.Tenants, c.Canary = map[string]string{}, local.NewKey()
		for i := range before + 1 {
			c.Tenants[tenant(i)] = local.NewKey()
		}
		c.Router = []string{"-admit-timeout", "1m", "-first-token-timeout", "40m", "-request-timeout", "45m", "-retry-ratio", "0"}
		if replays {
			c.Router = append(c.Router, "-replay-share", "1", "-replay-budget", "1")
		}
		c.Brokers = []local.Broker{{Name: "broker-p", Pages: z.prefillPages}, {Name: "broker-d", Pages: z.decodePages}}
		for i := range c.Brokers { // a look at every granted page would find what is left there, and hide the guards behind it
			c.Brokers[i].Args = []string{"-check-share=0", "-fair-share=0"} // four tenants fill the pool to its end
		}
		wide := []string{"-chunk", "512", "-queue-tokens", strconv.Itoa(2 * promise)}
		c.Prefills = []local.Worker{{ID: "prefill-0", Broker: "broker-p", Args: append([]string{"-promise", strconv.Itoa(prefillPromise)}, wide...)}}
		c.Decodes = []local.Worker{{ID: "decode-0", Broker: "broker-d", Args: wide}}
	}, start...)
	if err != nil {
		return nil, err
	}
	return &stage{Stage: st, size: z, say: say}, nil
}

func (s *stage) echo(tenant, tokens int) (canary.Echo, error) {
	s.seed++
	return canary.New(tenant, tokens, s.seed)
}

func (s *stage) post(ctx context.Context, e canary.Echo) (scenario.Answer, error) {
	body := map[string]any{"model": s.Loaded.Name, "prompt": canary.Text(e.Tokens), "max_tokens": canary.Answer, "temperature": 0}
	return s.Post(ctx, "/v1/completions", s.Tenants[tenant(e.Tenant)], body, nil)
}

// ask sends the asker's prompt of r.Length tokens and fills in what came of it.
func (s *stage) ask(ctx context.Context, r Row) (Row, error) {
	e, err := s.echo(asker, r.Length)
	if err != nil {
		return r, err
	}
	old, err := s.Alarms(ctx)
	if err != nil {
		return r, err
	}
	leases, err := s.reserved(ctx)
	if err != nil {
		return r, err
	}
	stop := s.progress(ctx, r.Length)
	start := time.Now()
	a, err := s.post(ctx, e)
	r.Took = time.Since(start)
	stop()
	if err != nil {
		return r, err
	}
	r.Status = http.StatusOK
	message := ""
	if a.Err != nil {
		r.Status, message = a.Err.Status, a.Err.Message
	}
	now, err := s.Alarms(ctx)
	if err != nil {
		return r, err
	}
	after, err := s.reserved(ctx)
	if err != nil {
		return r, err
	}
	r.judge(canary.Judge(e, canary.Parse(a.Text)), message, after-leases)
	if r.Spoke = scenario.Rose(old, now); r.Status == http.StatusBadRequest {
		r.Spoke = append(r.Spoke, "limit at the router")
	}
	return r, nil
}

// progress says every ten seconds how far prefill is, until stop.
func (s *stage) progress(ctx context.Context, tokens int) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(10 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if d, err := s.Describe(ctx, "broker-p"); err == nil {
					s.say("  prompt of %d tokens: %d of %d pages are sealed", tokens, d.Pool.Sealed, (tokens+pageTokens-2)/pageTokens)
				}
			}
		}
	}()
	return func() { cancel(); <-done }
}

// fillPool has four tenants leave their markers all over decode's pool: many prompts, each in pages of its own, since decode
// answers none of them before the last has arrived.
func (s *stage) fillPool(ctx context.Context) error {
	if err := s.Arm(decode0, fault.DecodeOwned, "hold"); err != nil {
		return err
	}
	already, err := s.Tally(decode0)
	if err != nil {
		return err
	}
	leases, err := s.reserved(ctx)
	if err != nil {
		return err
	}
	ended := make(chan error, fills)
	started := 0
	for i := range fills {
		e, oops := s.echo(i%before, s.fill)
		if err = oops; err != nil {
			break
		}
		if err = s.roomy(ctx, leases+2*i, s.fill); err != nil {
			break
		}
		started++
		go func() { ended <- s.filled(ctx, e) }()
		wait, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("a minute is over"))
		err = s.Fired(wait, decode0, fault.DecodeOwned, already.Fired[fault.DecodeOwned]+i+1)
		cancel()
		if err != nil {
			break
		}
	}
	err = errors.Join(err, s.Disarm(decode0, fault.DecodeOwned))
	for range started {
		err = errors.Join(err, <-ended)
	}
	if err != nil {
		return fmt.Errorf("filling decode's pool: %w", err)
	}
	s.say("%d prompts of %d tokens of %d tenants have been through decode's %d pages", fills, s.fill, before, s.decodePages)
	return s.settled(ctx)
}

func (s *stage) filled(ctx context.Context, e canary.Echo) error {
	a, err := s.post(ctx, e)
	if err == nil && a.Err != nil {
		err = errors.New(a.Err.String())
	}
	if v := canary.Judge(e, canary.Parse(a.Text)); err == nil && !v.Exact() {
		err = fmt.Errorf("a prompt of %d tokens: %v", len(e.Tokens), v)
	}
	return err
}

// roomy waits until the brokers have given out so many leases, and then until prefill's pool has room for a prompt: what
// went before has gone on to decode.
func (s *stage) roomy(ctx context.Context, leases, tokens int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("a minute is over"))
	defer cancel()
	return scenario.Until(ctx, func() error {
		n, err := s.reserved(ctx)
		if err != nil {
			return err
		}
		d, err := s.Describe(ctx, "broker-p")
		if err == nil && (n < leases || int(d.Pool.Free)*pageTokens < tokens) {
			err = fmt.Errorf("%d of %d leases are out, %d pages of prefill's pool free for a prompt of %d tokens", n, leases, d.Pool.Free, tokens)
		}
		return err
	})
}

func (s *stage) settled(ctx context.Context) error {
	wait, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("a minute is over"))
	defer cancel()
	return s.Baseline(wait, "broker-p", "broker-d")
}

// reserved is how many leases the brokers have given out.
func (s *stage) reserved(ctx context.Context) (n int, err error) {
	for _, b := range s.Brokers {
		all, err := s.Samples(ctx, "kvbroker/"+b.Name)
		if err != nil {
			return 0, err
		}
		for name, v := range all {
			if strings.HasPrefix(name, "leasehold_broker_lease_events_total") && strings.Contains(name, `event="reserved"`) {
				n += int(v)
			}
		}
	}
	return n, nil
}
