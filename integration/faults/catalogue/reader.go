package catalogue

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/fault"
)

// quarantineMetric is what a broker says of its quarantine on /metrics.
const quarantineMetric = `leasehold_broker_pages{state="quarantine"}`

// kept checks that the pages that prefill's broker lent stay in quarantine for a while, and that /metrics says so.
func (m *Mesh) kept(ctx context.Context, pages uint32, d time.Duration) error {
	if err := m.held(ctx, m.P, pages, d); err != nil {
		return err
	}
	return m.metricAbove(ctx, m.process(brokerOfP), quarantineMetric, float64(pages)-1)
}

// lost has the reader's word lost that it reads no more: the pages stay in quarantine past every deadline, and come back
// when its process is gone.
func lost(ctx context.Context, m *Mesh) error {
	where := m.process(brokerOfD)
	before, err := m.Tally(where)
	if err != nil {
		return err
	}
	if err := errors.Join(m.Arm(where, fault.MoverRead, "hold after=2 times=1"), m.Arm(where, fault.BrokerDrained, "drop times=1")); err != nil {
		return err
	}
	r := request(m.echo(0, m.Tokens))
	r.Change = due(1500 * time.Millisecond)
	a := m.start(ctx, r)
	defer a.cancel()
	if err := m.Fired(ctx, where, fault.MoverRead, before.Fired[fault.MoverRead]+1); err != nil {
		return err
	}
	out, err := a.wait()
	if err := red(out, err, errs.Unavailable, errs.Stale); err != nil {
		return err
	}
	n, err := m.quarantined(ctx, m.P)
	if err != nil {
		return err
	}
	if err := errors.Join(m.Disarm(where, fault.MoverRead), m.Fired(ctx, where, fault.BrokerDrained, before.Fired[fault.BrokerDrained]+1)); err != nil {
		return err
	}
	if err := errors.Join(m.exactBeside(ctx), m.kept(ctx, n, 1500*time.Millisecond)); err != nil {
		return fmt.Errorf("with the word lost: %w", err)
	}
	return errors.Join(m.restart(ctx, where), m.settled(ctx), m.sound(ctx, "after it"))
}

// exactBeside serves the other tenant.
func (m *Mesh) exactBeside(ctx context.Context) error {
	e := m.echo(1, m.Tokens)
	return m.exact(ctx, request(e), e)
}

// l13 stops the reader in the middle of a Pull, with its attach socket closed; the stream breaks at the deadline. Its pages
// stay in quarantine until it has run on, and said so, or is gone.
func l13(end func(context.Context, *Mesh) error) func(context.Context, *Mesh) error {
	return func(ctx context.Context, m *Mesh) error {
		where := m.process(brokerOfD)
		if err := errors.Join(m.Arm(where, fault.BrokerVisit, "drop times=1"), m.Arm(where, fault.MoverRead, "pause after=2 times=1")); err != nil {
			return err
		}
		r := request(m.echo(0, m.Tokens))
		r.Change = due(2 * time.Second)
		a := m.start(ctx, r)
		defer a.cancel()
		if err := until(ctx, 10*time.Second, func() error { return stopped(m.Process(where).PID()) }); err != nil {
			return err
		}
		n, err := m.quarantined(ctx, m.P)
		if err == nil && n != 5 {
			err = fmt.Errorf("%d pages are in quarantine, the prompt has 5", n)
		}
		if err == nil {
			err = m.kept(ctx, n, 1500*time.Millisecond)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("with the reader stopped: %w", err), m.Process(where).Signal(syscall.SIGCONT))
		}
		a.cancel() // its broker does not answer decode
		if out, err := a.wait(); err == nil || len(out.Tokens) > 0 {
			return fmt.Errorf("the request ended with %w and %d tokens", orNil(err), len(out.Tokens))
		}
		return errors.Join(end(ctx, m), m.settled(ctx), m.sound(ctx, "after it"))
	}
}

func goesOn(_ context.Context, m *Mesh) error {
	return m.Process(m.process(brokerOfD)).Signal(syscall.SIGCONT)
}

func isKilled(ctx context.Context, m *Mesh) error {
	where := m.process(brokerOfD)
	if err := m.Process(where).Kill(); err != nil {
		return err
	}
	if err := m.survivors(ctx, where); err != nil { // before it is there again
		return err
	}
	if err := m.Process(where).Start(); err != nil {
		return err
	}
	_, err := m.Process(where).Addr(ctx)
	return err
}

// readerCases are of the one mover whose receiver reads the sender's memory by itself.
func readerCases() []Case {
	only := []string{SHM}
	return []Case{
		{Row: "L2", Name: "the reader's word is lost", Movers: only, Own: true, Run: lost},
		{Row: "L3", Name: "decode's broker is killed while it copies", Movers: only, Own: true, Run: killed(brokerOfD, fault.MoverRead, "after=2", false)},
		{Row: "L13", Name: "a reader is stopped in its copy, its socket closed, and goes on", Movers: only, Run: l13(goesOn)},
		{Row: "L13", Name: "a reader is stopped in its copy, its socket closed, and killed", Movers: only, Own: true, Run: l13(isKilled)},
	}
}
