package catalogue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"leasehold.dev/integration/scenario"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/fault"
)

// Processes by their part in a handoff.
const (
	prefill   = "prefill/prefill-0"
	decode    = "decode/decode-0"
	router    = "router/router-0"
	brokerOfP = "P's broker"
	brokerOfD = "D's broker"
)

func (m *Mesh) process(part string) string {
	switch part {
	case brokerOfP:
		return "kvbroker/" + m.P
	case brokerOfD:
		return "kvbroker/" + m.D
	}
	return part
}

// broken is one request that meets one armed point: it is red, both as the router and as a tenant see it; the fault has
// happened; nothing stays behind; the next request is answered exactly.
type broken struct {
	row, name string
	movers    []string
	at        string
	point     fault.Point
	with      string
	kinds     []errs.Kind // what a worker's caller may see; default: corrupt
	verdict   bool        // only the router's comparison can see it: what a worker says is not looked at
}

func (b broken) each() Case {
	movers := b.movers
	if movers == nil {
		movers = Movers()
	}
	return Case{Row: b.row, Name: b.name, Movers: movers, Run: b.run}
}

func (b broken) run(ctx context.Context, m *Mesh) error {
	kinds := b.kinds
	if kinds == nil {
		kinds = []errs.Kind{errs.Corrupt}
	}
	where := m.process(b.at)
	with := b.with
	if !strings.Contains(with, "times=") {
		with += " times=1"
	}
	before, err := m.Tally(where)
	if err != nil {
		return err
	}
	fired := before.Fired[b.point]
	if !b.verdict && b.at != router {
		if err := m.Arm(where, b.point, with); err != nil {
			return err
		}
		out, err := m.drive(ctx, m.echo(0, m.Tokens))
		if err := red(out, err, kinds...); err != nil {
			return err
		}
		fired++
		if err := m.Fired(ctx, where, b.point, fired); err != nil {
			return err
		}
		if err := errors.Join(m.Disarm(where, b.point), m.settled(ctx)); err != nil {
			return fmt.Errorf("after the driver's request: %w", err)
		}
	}
	quiet, err := m.Alarms(ctx)
	if err != nil {
		return err
	}
	if err := m.Arm(where, b.point, with); err != nil {
		return err
	}
	if err := redForTenant(m.ask(ctx, m.echo(0, m.Tokens))); err != nil {
		return err
	}
	if err := m.loud(ctx, quiet); err != nil {
		return err
	}
	if err := errors.Join(m.Fired(ctx, where, b.point, fired+1), m.Disarm(where, b.point), m.settled(ctx)); err != nil {
		return err
	}
	return m.sound(ctx, "after it")
}

// loud waits until some alarm has risen: a guard that stops a request says so.
func (m *Mesh) loud(ctx context.Context, quiet map[string]float64) error {
	return until(ctx, 5*time.Second, func() error {
		now, err := m.Alarms(ctx)
		if err == nil && len(scenario.Rose(quiet, now)) == 0 {
			err = errors.New("the request was red, and no alarm has risen")
		}
		return err
	})
}

// h12 has prefill say that it took a thousandth of its time: the answer goes out, and the detector speaks.
func h12(ctx context.Context, m *Mesh) error {
	const alarm = `leasehold_boundary_incidents_total{detector="too_fast",property="P1"}`
	quiet, err := m.metric(ctx, router, alarm)
	if err != nil {
		return err
	}
	if err := m.sound(ctx, "at its own speed"); err != nil {
		return err
	}
	if n, err := m.metric(ctx, router, alarm); err != nil || n != quiet {
		return fmt.Errorf("after an honest request %s is %v, was %v; %w", alarm, n, quiet, orNil(err))
	}
	if err := m.Arm(prefill, fault.PrefillAnswer, "reorder times=1"); err != nil {
		return err
	}
	return errors.Join(m.sound(ctx, "too fast"), m.metricAbove(ctx, router, alarm, quiet), m.Disarm(prefill, fault.PrefillAnswer), m.settled(ctx))
}

// handoffPoints are the faults of a handoff that one point makes.
func handoffPoints() []broken {
	grpc, shm := []string{GRPC}, []string{SHM}
	stale := []errs.Kind{errs.Stale, errs.Corrupt, errs.Unavailable, errs.Internal}
	all := []broken{
		{row: "H3", name: "a page is left out of the Completion, MAC and all", at: brokerOfP, point: fault.Completion, with: "truncate"},
		{row: "H3", name: "a page is not handed to the mover", at: brokerOfP, point: fault.MoverPage, with: "drop after=2"},
		{row: "H3", name: "a page is handed over twice", at: brokerOfP, point: fault.MoverPage, with: "duplicate after=1"},
		{row: "H3", name: "a page is half as long on the wire", movers: grpc, at: brokerOfP, point: fault.MoverWire, with: "truncate after=2"},
		{row: "H3", name: "a page's message names none", movers: shm, at: brokerOfP, point: fault.MoverWire, with: "truncate after=2"},
		{row: "H3", name: "a page is lost on the wire", movers: between(), at: brokerOfP, point: fault.MoverWire, with: "drop after=2"},
		{row: "H3", name: "a page is sealed and the broker does not hear it", at: prefill, point: fault.PrefillSeal, with: "drop", kinds: []errs.Kind{errs.Corrupt, errs.Invalid}},
		{row: "H3", name: "right count, other prompt", at: router, point: fault.RouterAdmit, with: "corrupt"},
		{row: "H3", name: "decode feeds an id more than the prompt has", at: decode, point: fault.DecodeFed, with: "truncate"},
		{row: "H3", name: "decode feeds another id", at: decode, point: fault.DecodeFed, with: "corrupt"},
		{row: "H4", name: "the Completion of an old epoch", movers: []string{Local}, at: brokerOfP, point: fault.Completion, with: "stale-epoch"},
		{row: "H4", name: "the Completion of an old epoch", movers: between(), at: brokerOfP, point: fault.Completion, with: "stale-epoch", verdict: true},
		{row: "H4", name: "an old epoch, after it was sealed", at: brokerOfP, point: fault.MoverComplete, with: "stale-epoch"},
		{row: "H4", name: "prefill speaks of its lease with an old epoch", at: prefill, point: fault.ClientEpoch, with: "stale-epoch", kinds: stale},
		{row: "H4", name: "decode speaks of its lease with an old epoch", at: decode, point: fault.ClientEpoch, with: "stale-epoch", kinds: stale},
		{row: "H4", name: "the Completion comes twice", movers: between(), at: brokerOfP, point: fault.MoverWire, with: "duplicate after=7"},
		{row: "H4", name: "decode's verdict is of an old epoch", at: decode, point: fault.DecodeAnswer, with: "stale-epoch", verdict: true},
		{row: "H6", name: "two pages are swapped at rest, after they were sealed", at: brokerOfP, point: fault.BrokerSealed, with: "reorder"},
		{row: "H6", name: "two pages are swapped on their way", movers: between(), at: brokerOfP, point: fault.MoverPage, with: "reorder"},
		{row: "H6", name: "two messages are swapped on the wire", movers: between(), at: brokerOfP, point: fault.MoverWire, with: "reorder after=1"},
		{row: "H6", name: "two digests are swapped in the Completion", at: brokerOfP, point: fault.Completion, with: "reorder"},
		{row: "H6", name: "a digest is there twice", at: brokerOfP, point: fault.Completion, with: "duplicate"},
		{row: "H7", name: "the MAC is missing", at: brokerOfP, point: fault.MoverComplete, with: "truncate"},
		{row: "H7", name: "the MAC is another one", at: brokerOfP, point: fault.MoverComplete, with: "corrupt"},
		{row: "H7", name: "the digests are missing", at: brokerOfP, point: fault.Completion, with: "drop"},
		{row: "H7", name: "a digest is another one", at: brokerOfP, point: fault.Completion, with: "corrupt"},
		{row: "H7", name: "prefill seals a page with another digest", at: prefill, point: fault.PrefillSeal, with: "corrupt"},
		{row: "H11", name: "prefill's verdict says a row fewer", at: prefill, point: fault.PrefillAnswer, with: "truncate", verdict: true},
		{row: "H11", name: "decode's verdict says a row fewer", at: decode, point: fault.DecodeAnswer, with: "truncate", verdict: true},
		{row: "H11", name: "prefill has no verdict", at: prefill, point: fault.PrefillAnswer, with: "drop", verdict: true},
		{row: "H11", name: "prefill's verdict has another root", at: prefill, point: fault.PrefillAnswer, with: "corrupt", verdict: true},
		{row: "H11", name: "prefill's verdict is of an old epoch", at: prefill, point: fault.PrefillAnswer, with: "stale-epoch", verdict: true},
		{row: "H13", name: "a refusal drains as a prompt of one token", at: prefill, point: fault.PrefillAdmit, with: "truncate", kinds: []errs.Kind{errs.Corrupt, errs.Invalid}},
		{row: "H14", name: "prefill's plan names a longer sequence", at: prefill, point: fault.RunnerStep, with: "corrupt n=64"},
		{row: "H14", name: "decode's plan names a longer sequence", at: decode, point: fault.RunnerStep, with: "corrupt n=7"},
		{row: "H15", name: "the Pull ends well without a Completion", at: brokerOfP, point: fault.MoverComplete, with: "drop"},
	}
	for place := range 5 {
		all = append(all,
			broken{row: "H5", name: fmt.Sprintf("a byte of page %d flips while it is sent", place), movers: grpc, at: brokerOfP, point: fault.MoverRead, with: fmt.Sprintf("corrupt after=%d n=%d", place, 1500*place+7)},
			broken{row: "H5", name: fmt.Sprintf("a byte of page %d flips on the wire", place), movers: grpc, at: brokerOfP, point: fault.MoverWire, with: fmt.Sprintf("corrupt after=%d n=%d", place+1, 32000-900*place)},
			broken{row: "H5", name: fmt.Sprintf("a byte of page %d flips while STAGED", place), movers: between(), at: brokerOfD, point: fault.BrokerLanded, with: fmt.Sprintf("late-write after=%d n=%d", place, 64*place)},
			broken{row: "H5", name: fmt.Sprintf("the second half of page %d is zero", place), movers: grpc, at: brokerOfP, point: fault.MoverRead, with: fmt.Sprintf("truncate after=%d", place)},
			// Bytes go over no wire here: the receiver's copy is their way, and a message is the name of a page.
			broken{row: "H5", name: fmt.Sprintf("a byte of page %d flips while it is copied", place), movers: shm, at: brokerOfD, point: fault.MoverRead, with: fmt.Sprintf("corrupt after=%d n=%d", place, 1500*place+7)},
			broken{row: "H5", name: fmt.Sprintf("the second half of page %d is zero", place), movers: shm, at: brokerOfD, point: fault.MoverRead, with: fmt.Sprintf("truncate after=%d", place)},
			broken{row: "H6", name: fmt.Sprintf("for page %d the one beside it in the pool is named", place), movers: shm, at: brokerOfP, point: fault.MoverWire, with: fmt.Sprintf("corrupt after=%d n=0", place+1)},
			broken{row: "H6", name: fmt.Sprintf("for page %d a page outside of the pool is named", place), movers: shm, at: brokerOfP, point: fault.MoverWire, with: fmt.Sprintf("corrupt after=%d n=%d", place+1, 31-place)})
	}
	for _, n := range []int{0, 4096, 9001, 16384} {
		all = append(all, broken{row: "H5", name: fmt.Sprintf("byte %d of a sealed page flips at rest", n), at: brokerOfP, point: fault.BrokerSealed, with: fmt.Sprintf("late-write n=%d", n)})
	}
	return all
}
