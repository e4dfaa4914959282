package catalogue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"leasehold.dev/cli/local"
	"leasehold.dev/integration/driver"
	"leasehold.dev/integration/faultkit"
	"leasehold.dev/integration/scenario"
	"leasehold.dev/model/canary"
	"leasehold.dev/protos/errs"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

// The movers that there are.
const (
	Local = "local"
	GRPC  = "grpc"
	SHM   = "shm"
	UCX   = "ucx"
)

// Movers is all of them.
func Movers() []string { return []string{Local, GRPC, SHM, UCX} }

// between are those that bring pages from one broker's pool to another's.
func between() []string { return []string{GRPC, SHM, UCX} }

// Case is one scenario of a row.
type Case struct {
	Row, Name string
	Movers    []string // on which it runs; none: no mover has a part in it
	Own       bool     // it needs a mesh of its own
	Mesh      func(*local.Config)
	Run       func(context.Context, *Mesh) error
	Package   string // of the tests that are the scenario, instead of Run
	Tests     string // regular expression
}

// Mesh is a mesh of the faults build over the canary model, with pages on their way by one mover.
type Mesh struct {
	*faultkit.Stage
	Mover  string
	P, D   string // brokers: the source's and the destination's
	Tokens int    // of an honest prompt
	seed   uint64
}

// tokens of a prompt: five pages, the last one partial.
const tokens = 300

// Config is the mesh of a mover: two pools, or one.
func Config(mover string) func(*local.Config) {
	return func(c *local.Config) {
		c.Promise = 4096
		c.Tenants = map[string]string{"demo": local.NewKey(), "other": local.NewKey()}
		c.Router = []string{"-retry-ratio", "0"} // a retry would hide what the first attempt said
		c.Decodes[0].Args = []string{"-self-prefill=-1"}
		only := []string{"-movers", mover} // or the router would choose the fastest that both brokers have
		c.Brokers = []local.Broker{{Name: "broker-p", Pages: 400, Args: only}, {Name: "broker-d", Pages: 400, Args: only}}
		if mover == UCX {
			for i := range c.Brokers {
				c.Brokers[i].Mover = []string{"-transports", "posix,cma"}
			}
		}
		if mover == Local {
			c.Brokers = []local.Broker{{Name: "broker-p", Pages: 800}}
			c.Decodes[0].Broker = "broker-p"
		}
	}
}

// Open starts the mesh of a mover. The caller closes it.
func Open(ctx context.Context, s scenario.Setup, mover string, change func(*local.Config)) (*Mesh, error) {
	m := &Mesh{Mover: mover, P: "broker-p", D: "broker-d", Tokens: tokens}
	if mover == Local {
		m.D = m.P
	}
	var err error
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, errors.New("30 s are over")) // of the start alone
	defer cancel()
	m.Stage, err = faultkit.Open(ctx, s, func(c *local.Config) {
		Config(mover)(c)
		if change != nil {
			change(c)
		}
	})
	if err == nil {
		m.Driver.Mover = map[string]meshv1.Mover{GRPC: meshv1.Mover_MOVER_GRPC, Local: meshv1.Mover_MOVER_GRPC, SHM: meshv1.Mover_MOVER_SHM, UCX: meshv1.Mover_MOVER_UCX}[mover]
	}
	return m, err
}

// echo is a prompt of tenant 0 or 1, never the same twice.
func (m *Mesh) echo(tenant, tokens int) canary.Echo {
	m.seed++
	e, err := canary.New(tenant, tokens, m.seed)
	if err != nil {
		panic(err) // a bug of the case
	}
	return e
}

func request(e canary.Echo) driver.Request {
	return driver.Request{Tenant: []string{"demo", "other"}[e.Tenant], IDs: e.Tokens, MaxNew: canary.Answer, Prefill: "prefill-0", Decode: "decode-0"}
}

// drive sends an echo as the router would.
func (m *Mesh) drive(ctx context.Context, e canary.Echo) (driver.Outcome, error) {
	return m.Driver.Run(ctx, request(e))
}

// ask sends an echo as a tenant does.
func (m *Mesh) ask(ctx context.Context, e canary.Echo) (scenario.Answer, error) {
	key := m.Tenants[[]string{"demo", "other"}[e.Tenant]]
	return m.Post(ctx, "/v1/completions", key, body(m, e), nil)
}

func body(m *Mesh, e canary.Echo) map[string]any {
	return map[string]any{"model": m.Loaded.Name, "prompt": e.Tokens, "max_tokens": canary.Answer, "temperature": 0, "stream": true}
}

// sound checks that an honest request is answered exactly, as both a tenant and the router see it.
func (m *Mesh) sound(ctx context.Context, when string) error {
	e := m.echo(0, m.Tokens)
	wait, cancel := context.WithTimeoutCause(ctx, 20*time.Second, errors.New("20 s are over"))
	defer cancel()
	err := scenario.Until(wait, func() error {
		a, err := m.ask(wait, e)
		if err != nil {
			return err
		}
		if v := canary.Judge(e, canary.Parse(a.Text)); a.Err != nil || !v.Exact() || !a.Completed {
			return fmt.Errorf("%v: %v", a.Err, v)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("an honest request %s: %w", when, err)
	}
	return nil
}

// red checks that an outcome is an error of one of these kinds and that nothing was generated.
func red(out driver.Outcome, err error, kinds ...errs.Kind) error {
	if k := errs.KindOf(err); err == nil || !slices.Contains(kinds, k) {
		return fmt.Errorf("ended with %w (kind %v), want one of %v", orNil(err), k, kinds)
	}
	if len(out.Tokens) > 0 || out.Finished != nil {
		return fmt.Errorf("%d tokens came out", len(out.Tokens))
	}
	return nil
}

var errNone = errors.New("no error")

func orNil(err error) error {
	if err == nil {
		return errNone
	}
	return err
}

// redForTenant checks that an answer is an explicit error without any text.
func redForTenant(a scenario.Answer, err error) error {
	switch {
	case err != nil:
		return err
	case a.Err == nil || a.Completed || a.Finish != "":
		return fmt.Errorf("the tenant got error %v, finish_reason %q, [DONE] %v; want an error alone", a.Err, a.Finish, a.Completed)
	case a.Text != "":
		return fmt.Errorf("the tenant got %d bytes of text with the error", len(a.Text))
	case a.Err.Status < 400:
		return fmt.Errorf("the tenant got status %d", a.Err.Status)
	}
	return nil
}

// settled waits until no lease is left; pages that a broker has condemned may stay withheld or be in quarantine no more.
func (m *Mesh) settled(ctx context.Context) error {
	wait, cancel := context.WithTimeoutCause(ctx, 10*time.Second, errors.New("10 s are over"))
	defer cancel()
	for _, b := range m.Brokers {
		err := scenario.Until(wait, func() error {
			d, err := m.Describe(wait, b.Name)
			if err == nil && (len(d.Leases) > 0 || d.Pool.Free+d.Pool.Zeroing != d.Pool.Pages) {
				err = fmt.Errorf("broker %s: pool %v, leases %v", b.Name, d.Pool, d.Leases)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// until is scenario.Until with a time.
func until(ctx context.Context, d time.Duration, f func() error) error {
	wait, cancel := context.WithTimeoutCause(ctx, d, fmt.Errorf("%v are over", d))
	defer cancel()
	return scenario.Until(wait, f)
}

// due sets an admission's deadline.
func due(after time.Duration) func(*meshv1.Admission) {
	return func(a *meshv1.Admission) { a.DeadlineUnixMs = time.Now().Add(after).UnixMilli() }
}
