package catalogue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"leasehold.dev/cli/local"
	"leasehold.dev/integration/driver"
	"leasehold.dev/model/canary"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/fault"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
)

// started is a request that runs beside the case.
type started struct {
	cancel context.CancelFunc
	done   chan struct{}
	out    driver.Outcome
	err    error
}

func (m *Mesh) start(ctx context.Context, r driver.Request) *started {
	ctx, cancel := context.WithCancel(ctx)
	s := &started{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		s.out, s.err = m.Driver.Run(ctx, r)
	}()
	return s
}

func (s *started) wait() (driver.Outcome, error) {
	<-s.done
	return s.out, s.err
}

// exact runs an echo and wants the right answer.
func (m *Mesh) exact(ctx context.Context, r driver.Request, e canary.Echo) error {
	out, err := m.Driver.Run(ctx, r)
	if v := canary.Judge(e, out.Tokens); err != nil || !v.Exact() {
		return fmt.Errorf("tenant %d beside it: %v, %w", e.Tenant, v, orNil(err))
	}
	return nil
}

// quarantined waits until a broker has pages in quarantine.
func (m *Mesh) quarantined(ctx context.Context, broker string) (n uint32, err error) {
	err = until(ctx, 10*time.Second, func() error {
		d, err := m.Describe(ctx, broker)
		if err != nil {
			return err
		}
		if n = d.Pool.Quarantine; n == 0 {
			return fmt.Errorf("broker %s has nothing in quarantine: %v", broker, d.Pool)
		}
		return nil
	})
	return n, err
}

// held checks that what is in quarantine stays there for a while.
func (m *Mesh) held(ctx context.Context, broker string, n uint32, d time.Duration) error {
	end := time.Now().Add(d)
	return until(ctx, d+10*time.Second, func() error {
		p, err := m.Describe(ctx, broker)
		switch {
		case err != nil:
			return err
		case p.Pool.Quarantine < n:
			return fatal{fmt.Errorf("broker %s: %d pages in quarantine, before %d", broker, p.Pool.Quarantine, n)}
		case time.Now().Before(end):
			return errors.New("not long enough yet")
		}
		return nil
	})
}

// fatal is what ends a wait: until passes it on when the time is over.
type fatal struct{ error }

// l1 slows A's transfer at one of its ends, cancels A in its middle and serves B at once.
func l1(part string, point fault.Point) func(context.Context, *Mesh) error {
	return func(ctx context.Context, m *Mesh) error {
		where := m.process(part)
		if err := m.Arm(where, point, "hold after=2 times=1"); err != nil {
			return err
		}
		before, err := m.Tally(where)
		if err != nil {
			return err
		}
		a := m.start(ctx, request(m.echo(0, m.Tokens)))
		if err := m.Fired(ctx, where, point, before.Fired[point]+1); err != nil {
			return err
		}
		a.cancel()
		if _, err := a.wait(); !errors.Is(err, context.Canceled) {
			return fmt.Errorf("A ended with %w, want canceled", orNil(err))
		}
		e := m.echo(1, m.Tokens)
		if err := errors.Join(m.inUse(ctx, m.P, 5), m.exact(ctx, request(e), e), m.inUse(ctx, m.P, 5)); err != nil {
			return fmt.Errorf("A was cancelled while its mover was held: %w", err)
		}
		return errors.Join(m.Disarm(where, point), m.settled(ctx), m.sound(ctx, "after it"))
	}
}

// inUse checks that at least n pages of a broker are written, sealed or in quarantine: neither free nor on the way there.
func (m *Mesh) inUse(ctx context.Context, broker string, n uint32) error {
	d, err := m.Describe(ctx, broker)
	if err == nil && d.Pool.Writing+d.Pool.Sealed+d.Pool.Quarantine < n {
		err = fmt.Errorf("broker %s: %v, want %d pages in use", broker, d.Pool, n)
	}
	return err
}

// l2 loses the proof that a lease's worker is through: its pages stay in quarantine past every deadline, and come back
// when the process is gone.
func l2(ctx context.Context, m *Mesh) error {
	where := m.process(brokerOfD)
	r := request(m.echo(0, m.Tokens))
	r.MaxNew, r.Change, r.Sampling = 400, due(3*time.Second), &decodev1.Sampling{IgnoreEos: true}
	if err := errors.Join(m.Arm(where, fault.BrokerRetired, "drop"), m.Arm(decode, fault.RunnerStep, "delay for=20ms")); err != nil {
		return err
	}
	if out, err := m.Driver.Run(ctx, r); err == nil {
		return fmt.Errorf("a request of %d tokens ended well within its 3 s", len(out.Tokens))
	}
	n, err := m.quarantined(ctx, m.D)
	if err != nil {
		return err
	}
	if err := m.held(ctx, m.D, n, 1500*time.Millisecond); err != nil {
		return err
	}
	if err := m.metricAbove(ctx, where, `leasehold_broker_pages{state="quarantine"}`, float64(n)-1); err != nil {
		return err
	}
	if err := errors.Join(m.Disarm(where, fault.BrokerRetired), m.Disarm(decode, fault.RunnerStep), m.restart(ctx, decode)); err != nil {
		return err
	}
	return errors.Join(m.settled(ctx), m.sound(ctx, "after it"))
}

// restart kills a process and starts it anew.
func (m *Mesh) restart(ctx context.Context, process string) error {
	p := m.Process(process)
	if err := errors.Join(p.Kill(), p.Start()); err != nil {
		return err
	}
	_, err := p.Addr(ctx)
	return err
}

// l4 restarts a broker whose lease is being served, on the same address.
func l4(part string) func(context.Context, *Mesh) error {
	return func(ctx context.Context, m *Mesh) error {
		where := m.process(part)
		if err := m.Arm(m.process(brokerOfP), fault.MoverPage, "hold after=1 times=1"); err != nil {
			return err
		}
		before, err := m.Tally(m.process(brokerOfP))
		if err != nil {
			return err
		}
		a := m.start(ctx, request(m.echo(0, m.Tokens)))
		defer a.cancel()
		if err := m.Fired(ctx, m.process(brokerOfP), fault.MoverPage, before.Fired[fault.MoverPage]+1); err != nil {
			return err
		}
		old, err := m.Describe(ctx, m.P)
		if err != nil {
			return err
		}
		if err := m.restart(ctx, where); err != nil {
			return err
		}
		out, err := a.wait()
		if err := red(out, err, errs.Unavailable, errs.NotFound, errs.Stale); err != nil {
			return err
		}
		if part == brokerOfD && m.Mover != Local {
			if err := m.Disarm(m.process(brokerOfP), fault.MoverPage); err != nil {
				return err
			}
		}
		if err := errors.Join(m.sound(ctx, "after the restart"), m.settled(ctx)); err != nil {
			return err
		}
		fresh, err := m.Describe(ctx, m.P)
		if err == nil && part == brokerOfP && string(fresh.Identity.Instance) == string(old.Identity.Instance) {
			err = errors.New("the instance is the old one")
		}
		return err
	}
}

// l5 lets the source lease expire while its last message is held: the read fails although all bytes came.
func l5(ctx context.Context, m *Mesh) error {
	where := m.process(brokerOfP)
	point, with := fault.MoverPage, "hold after=4 times=1"
	if m.Mover != Local {
		point, with = fault.MoverWire, "hold after=6 times=1" // after Attached and five pages
	}
	before, err := m.Tally(where)
	if err != nil {
		return err
	}
	deadline := "truncate times=1 n=700"
	if m.Mover == Local {
		deadline = "truncate after=1 times=1 n=700" // D's lease is the first that this broker grants
	}
	if err := errors.Join(m.Arm(where, point, with), m.Arm(where, fault.BrokerDeadline, deadline)); err != nil {
		return err
	}
	a := m.start(ctx, request(m.echo(0, m.Tokens)))
	defer a.cancel()
	if err := m.Fired(ctx, where, point, before.Fired[point]+1); err != nil {
		return err
	}
	if err := m.sourceEnded(ctx); err != nil {
		return err
	}
	if err := errors.Join(m.Disarm(where, point), m.Disarm(where, fault.BrokerDeadline)); err != nil {
		return err
	}
	out, err := a.wait()
	return errors.Join(red(out, err, errs.Unavailable), m.settled(ctx), m.sound(ctx, "after it"))
}

// sourceEnded waits until no source lease is valid any more.
func (m *Mesh) sourceEnded(ctx context.Context) error {
	return until(ctx, 10*time.Second, func() error {
		d, err := m.Describe(ctx, m.P)
		if err != nil {
			return err
		}
		for _, l := range d.Leases {
			if l.Role == brokerv1.Role_ROLE_SOURCE && !strings.EqualFold(l.State, "quarantine") {
				return fmt.Errorf("a source lease is %s", l.State)
			}
		}
		return nil
	})
}

// l6 has transfers that one end never ends, until the quarantine of prefill's broker is over its cap.
func l6(part string, point fault.Point) func(context.Context, *Mesh) error {
	return func(ctx context.Context, m *Mesh) error { return m.stuck(ctx, m.process(part), point) }
}

func (m *Mesh) stuck(ctx context.Context, where string, point fault.Point) error {
	if err := m.Arm(where, point, "hold"); err != nil {
		return err
	}
	full := func() (bool, error) {
		code, text, err := m.Admin(ctx, m.process(brokerOfP), "/readyz")
		return code != 200 && strings.Contains(text, "in quarantine, cap 20"), err
	}
	stopped := false
	var all []*started
	for i := range 6 {
		r := request(m.echo(0, m.Tokens))
		r.Change = due(3 * time.Second)
		all = append(all, m.start(ctx, r))
		if err := m.Fired(ctx, where, point, i+1); err != nil {
			return err
		}
	}
	for _, a := range all {
		if out, err := a.wait(); err == nil {
			return fmt.Errorf("a request whose transfer is stuck ended well with %d tokens", len(out.Tokens))
		}
	}
	err := until(ctx, 10*time.Second, func() (err error) {
		if stopped, err = full(); err == nil && !stopped {
			err = errors.New("it is ready")
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("with 30 pages in quarantine and a cap of 20: %w", err)
	}
	out, err := m.drive(ctx, m.echo(1, m.Tokens))
	if err := red(out, err, errs.Exhausted, errs.Unavailable); err != nil {
		return fmt.Errorf("over the cap: %w", err)
	}
	return errors.Join(m.Disarm(where, point), m.settled(ctx), m.sound(ctx, "once it has drained"))
}

// l7 cancels in each state, with what goes on in it held.
func l7(part string, point fault.Point, with string) func(context.Context, *Mesh) error {
	return func(ctx context.Context, m *Mesh) error {
		where := m.process(part)
		before, err := m.Tally(where)
		if err != nil {
			return err
		}
		if err := m.Arm(where, point, with); err != nil {
			return err
		}
		a := m.start(ctx, request(m.echo(0, m.Tokens)))
		if err := m.Fired(ctx, where, point, before.Fired[point]+1); err != nil {
			a.cancel()
			return err
		}
		a.cancel()
		out, err := a.wait()
		if !errors.Is(err, context.Canceled) || len(out.Tokens) > 0 {
			return fmt.Errorf("the cancelled request ended with %w and %d tokens", orNil(err), len(out.Tokens))
		}
		return errors.Join(m.Disarm(where, point), m.settled(ctx), m.sound(ctx, "after it"))
	}
}

// l9 stops prefill in a step, lets its lease end, serves another tenant by another worker of the same broker, and goes on.
func l9(ctx context.Context, m *Mesh) error {
	if err := m.Arm(prefill, fault.RunnerStep, "pause after=1 times=1"); err != nil {
		return err
	}
	p := m.Process(prefill)
	r := request(m.echo(0, m.Tokens))
	r.Change = due(4 * time.Second)
	a := m.start(ctx, r)
	defer a.cancel()
	if err := until(ctx, 10*time.Second, func() error { return stopped(p.PID()) }); err != nil {
		return err
	}
	if _, err := m.quarantined(ctx, m.P); err != nil {
		return err
	}
	const n = 5 // the prompt's pages; with one pool decode's own are there too, until it has retired
	e := m.echo(1, m.Tokens)
	other := request(e)
	other.Prefill = "prefill-1"
	if err := errors.Join(m.exact(ctx, other, e), m.held(ctx, m.P, n, 300*time.Millisecond)); err != nil {
		return err
	}
	if err := p.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	out, err := a.wait()
	if err == nil || len(out.Tokens) > 0 {
		return fmt.Errorf("the stopped worker's request ended with %w and %d tokens", orNil(err), len(out.Tokens))
	}
	return errors.Join(m.settled(ctx), m.exact(ctx, other, e), m.sound(ctx, "after it"))
}

// l10 fills every page that is cleared with NaN instead: nobody reads what was not written.
func l10(ctx context.Context, m *Mesh) error {
	for _, b := range m.Brokers {
		if err := m.Arm("kvbroker/"+b.Name, fault.BrokerClear, "corrupt"); err != nil {
			return err
		}
	}
	if err := m.Guards(fault.Zero); err != nil {
		return err
	}
	for i := range 12 { // the pools go round: every page was NaN by then
		e := m.echo(i%2, 200+40*i)
		if err := m.exact(ctx, request(e), e); err != nil {
			return fmt.Errorf("request %d: %w", i, err)
		}
	}
	return errors.Join(m.Guards(), m.Calm(), m.settled(ctx))
}

// l11 writes into a page after it was cleared: its next grant finds it.
func l11(part string) func(context.Context, *Mesh) error {
	return func(ctx context.Context, m *Mesh) error {
		where := m.process(part)
		if err := m.Arm(where, fault.BrokerCleared, "late-write times=1 n=77"); err != nil {
			return err
		}
		before, err := m.metric(ctx, where, `leasehold_broker_incidents_total{kind="late_write"}`)
		if err != nil {
			return err
		}
		e := m.echo(0, m.Tokens)
		if err := m.exact(ctx, request(e), e); err != nil {
			return err
		}
		if err := errors.Join(m.settled(ctx), m.Fired(ctx, where, fault.BrokerCleared, 1)); err != nil {
			return err
		}
		found := errors.New("no request met the page")
		for range 3 { // the page is granted again to one of the next
			out, err := m.drive(ctx, m.echo(1, m.Tokens))
			if err == nil {
				continue
			}
			if err := red(out, err, errs.Unavailable); err != nil {
				return err
			}
			found = nil
			break
		}
		if found != nil {
			return found
		}
		return errors.Join(m.metricAbove(ctx, where, `leasehold_broker_incidents_total{kind="late_write"}`, before), m.Calm(), m.settled(ctx), m.sound(ctx, "after it"))
	}
}

// lateRows lets prefill write the rows of an earlier step of A's into the page once B has it: B is red.
func lateRows(ctx context.Context, m *Mesh) error {
	if err := m.Arm(prefill, fault.EngineAppend, "duplicate times=1"); err != nil {
		return err
	}
	e := m.echo(0, m.Tokens)
	if err := errors.Join(m.exact(ctx, request(e), e), m.settled(ctx)); err != nil {
		return err
	}
	c := m.echo(0, m.Tokens) // the free list turns round with each request: the second has the first's pages at their places
	if err := errors.Join(m.exact(ctx, request(c), c), m.settled(ctx)); err != nil {
		return err
	}
	if err := m.Arm(prefill, fault.EngineAppend, "late-write after=2 times=1"); err != nil { // in B's last step
		return err
	}
	out, err := m.drive(ctx, m.echo(1, m.Tokens))
	return errors.Join(red(out, err, errs.Corrupt), m.Disarm(prefill, fault.EngineAppend), m.settled(ctx), m.sound(ctx, "after it"))
}

// earlier replaces a page by what it was some steps before.
func earlier(ctx context.Context, m *Mesh) error {
	if err := m.Arm(prefill, fault.EngineAppend, "duplicate times=1"); err != nil { // half of page 0, with chunks of 32
		return err
	}
	if err := m.Arm(prefill, fault.RunnerStep, "hold after=3 times=1"); err != nil {
		return err
	}
	before, err := m.Tally(prefill)
	if err != nil {
		return err
	}
	a := m.start(ctx, request(m.echo(0, m.Tokens)))
	defer a.cancel()
	if err := m.Fired(ctx, prefill, fault.RunnerStep, before.Fired[fault.RunnerStep]+1); err != nil {
		return err
	}
	if err := errors.Join(m.Arm(prefill, fault.EngineAppend, "late-write times=1"), m.Disarm(prefill, fault.RunnerStep)); err != nil {
		return err
	}
	out, err := a.wait()
	return errors.Join(red(out, err, errs.Corrupt), m.Disarm(prefill, fault.EngineAppend), m.settled(ctx), m.sound(ctx, "after it"))
}

// acrossTenants sends another tenant's page in place of the request's own.
func acrossTenants(ctx context.Context, m *Mesh) error {
	where := m.process(brokerOfP)
	if err := m.Arm(where, fault.MoverWire, "hold after=6 times=1"); err != nil { // the other's pages are there, and stay
		return err
	}
	before, err := m.Tally(where)
	if err != nil {
		return err
	}
	other := m.echo(1, m.Tokens)
	a := m.start(ctx, request(other))
	defer a.cancel()
	if err := m.Fired(ctx, where, fault.MoverWire, before.Fired[fault.MoverWire]+1); err != nil {
		return err
	}
	for place := range 5 {
		if err := m.Arm(where, fault.BrokerRead, fmt.Sprintf("reorder after=%d times=1", place)); err != nil {
			return err
		}
		out, err := m.drive(ctx, m.echo(0, m.Tokens))
		if err := red(out, err, errs.Corrupt); err != nil {
			return fmt.Errorf("page %d of the other's: %w", place, err)
		}
	}
	if err := errors.Join(m.Disarm(where, fault.BrokerRead), m.Disarm(where, fault.MoverWire)); err != nil {
		return err
	}
	out, err := a.wait()
	if v := canary.Judge(other, out.Tokens); err != nil || !v.Exact() {
		return fmt.Errorf("the other tenant: %v, %w", v, orNil(err))
	}
	return errors.Join(m.settled(ctx), m.sound(ctx, "after it"))
}

// h8 kills prefill between its last chunk and its Completion.
func h8(ctx context.Context, m *Mesh) error {
	if err := m.Arm(prefill, fault.PrefillFinish, "kill times=1"); err != nil {
		return err
	}
	p := m.Process(prefill)
	if err := redForTenant(m.ask(ctx, m.echo(0, m.Tokens))); err != nil {
		return err
	}
	select {
	case <-p.Exited():
	case <-ctx.Done():
		return ctx.Err()
	}
	_ = p.Ended("by the point that killed it") // and it is told
	if err := errors.Join(m.settled(ctx), p.Start()); err != nil {
		return err
	}
	if _, err := p.Addr(ctx); err != nil {
		return err
	}
	return m.sound(ctx, "after the restart")
}

func lowCap(c *local.Config) {
	c.Brokers[0].Args = append([]string{"-quarantine-pages", "20"}, c.Brokers[0].Args...)
}

func twoPrefills(c *local.Config) {
	c.Prefills = append(c.Prefills, local.Worker{ID: "prefill-1", Broker: "broker-p"})
}

func lifeCases() []Case {
	all := append(readerCases(), []Case{
		{Row: "H6", Name: "a page of another tenant is sent", Movers: between(), Run: acrossTenants},
		{Row: "H6", Name: "a page is replaced by an earlier version of itself", Movers: Movers(), Own: true, Run: earlier,
			Mesh: func(c *local.Config) { c.Prefills[0].Args = []string{"-chunk", "32"} }},
		{Row: "H8", Name: "prefill is killed between its last chunk and its end", Movers: Movers(), Own: true, Run: h8},
		{Row: "L1", Name: "A's transfer is held, A is cancelled, B comes at once", Movers: Movers(), Run: l1(brokerOfP, fault.MoverPage)},
		{Row: "L1", Name: "A's copy is held, A is cancelled, B comes at once", Movers: []string{SHM}, Run: l1(brokerOfD, fault.MoverRead)},
		{Row: "L2", Name: "the worker's proof is lost", Movers: Movers(), Own: true, Run: l2},
		{Row: "L4", Name: "prefill's broker is restarted", Movers: Movers(), Own: true, Run: l4(brokerOfP)},
		{Row: "L4", Name: "decode's broker is restarted", Movers: between(), Own: true, Run: l4(brokerOfD)},
		{Row: "L5", Name: "the source lease expires before the last word", Movers: Movers(), Run: l5},
		{Row: "L6", Name: "transfers that never end fill the quarantine", Movers: between(), Own: true, Run: l6(brokerOfP, fault.MoverPage), Mesh: lowCap},
		{Row: "L6", Name: "copies that never end fill the quarantine", Movers: []string{SHM}, Own: true, Run: l6(brokerOfD, fault.MoverRead), Mesh: lowCap},
		{Row: "L9", Name: "prefill is stopped in a step and continued when its lease is over", Movers: Movers(), Own: true, Run: l9, Mesh: twoPrefills},
		{Row: "L10", Name: "pages are filled with NaN instead of cleared", Movers: Movers(), Own: true, Run: l10, Mesh: unchecked},
		{Row: "L11", Name: "a page of decode's broker is written after it was cleared", Movers: between(), Own: true, Run: l11(brokerOfD), Mesh: tiny},
		{Row: "L11", Name: "a page of prefill's broker is written after it was cleared", Movers: Movers(), Own: true, Run: l11(brokerOfP), Mesh: tiny},
		{Row: "L11", Name: "rows of a lease that is over are written into the next one's page", Movers: Movers(), Own: true, Run: lateRows, Mesh: tiny},
	}...)
	for _, s := range []struct {
		name, part string
		point      fault.Point
		with       string
		movers     []string
	}{
		{"while a lease is asked for at decode's broker", brokerOfD, fault.BrokerReserve, "hold times=1", Movers()},
		{"while decode has been admitted and prefill waits", prefill, fault.PrefillAdmit, "hold times=1", Movers()},
		{"in prefill's second step", prefill, fault.RunnerStep, "hold after=1 times=1", Movers()},
		{"while pages are sealed", prefill, fault.PrefillSeal, "hold times=1", Movers()},
		{"before prefill finishes", prefill, fault.PrefillFinish, "hold times=1", Movers()},
		{"while a page is on its way", brokerOfP, fault.MoverPage, "hold after=2 times=1", Movers()},
		{"while a page is copied", brokerOfD, fault.MoverRead, "hold after=2 times=1", []string{SHM}},
		{"before the pages are said to be sent", brokerOfP, fault.MoverWire, "hold after=6 times=1", between()},
		{"before the Completion", brokerOfP, fault.MoverComplete, "hold times=1", Movers()},
		{"while a page lands", brokerOfD, fault.BrokerLanded, "hold after=3 times=1", between()},
		{"before the pages are verified", brokerOfD, fault.BrokerVerify, "hold times=1", Movers()},
		{"before decode has its pages", decode, fault.DecodeOwned, "hold times=1", Movers()},
		{"in decode's first step", decode, fault.RunnerStep, "hold times=1", Movers()},
	} {
		all = append(all, Case{Row: "L7", Name: "cancelled " + s.name, Movers: s.movers, Run: l7(s.part, s.point, s.with)})
	}
	return all
}

// unchecked is a mesh whose brokers do not look whether a granted page is zero.
func unchecked(c *local.Config) {
	c.Promise = 24 * 64
	for i := range c.Brokers {
		c.Brokers[i].Pages, c.Brokers[i].Args = 24, append([]string{"-check-share=0"}, c.Brokers[i].Args...)
	}
}

// tiny has pools in which the next request takes the pages of the one before.
func tiny(c *local.Config) {
	c.Promise = 12 * 64
	for i := range c.Brokers {
		c.Brokers[i].Pages = 12
	}
}
