package guards

import (
	"context"
	"errors"
	"fmt"
	"time"

	"leasehold.dev/integration/driver"
	"leasehold.dev/integration/scenario"
	"leasehold.dev/model/canary"
	"leasehold.dev/protos/fault"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

// Processes.
const (
	prefill0 = "prefill/prefill-0"
	decode0  = "decode/decode-0"
	decode1  = "decode/decode-1"
	brokerP  = "kvbroker/broker-p"
	brokerD  = "kvbroker/broker-d"
)

// Attack is something that goes wrong, and that guards are for.
type Attack struct {
	Name   string
	limits bool   // on the mesh whose prefill holds less than is promised
	never  string // why no marker can come out even with all guards off; empty: they must
	run    func(*stage, context.Context) (Seen, error)
}

var (
	// stub: prefill cannot hold the prompt, and its refusal drains through the path of a success as a prompt of one token.
	stub = &Attack{Name: "a refusal becomes a prompt of one token", limits: true, run: func(s *stage, ctx context.Context) (Seen, error) {
		return s.armed(prefill0, fault.PrefillAdmit, "truncate", func() (Seen, error) { return s.ask(ctx, s.echo(asker, tooLong), canary.Answer) })
	}}
	// wrongPage: the source broker sends another tenant's page.
	wrongPage = &Attack{Name: "another tenant's page is sent", run: func(s *stage, ctx context.Context) (Seen, error) { return s.beside(ctx, "reorder") }}
	// forged: and the Completion is changed to fit, after it was sealed.
	forged = &Attack{Name: "another tenant's page is sent, and its digest is put into the sealed Completion",
		run: func(s *stage, ctx context.Context) (Seen, error) { return s.beside(ctx, "corrupt") }}
	early      = &Attack{Name: "decode does not wait for its pages", run: (*stage).earlyStart}
	longer     = &Attack{Name: "the plan names rows that were never appended", run: (*stage).longerPlan}
	lateWriter = &Attack{Name: "prefill writes when its lease is over and its pages are another's", run: (*stage).lateWrite}
	lateReader = &Attack{Name: "decode reads when its lease is over and its pages are another's", run: (*stage).lateRead}
	oldEpoch   = &Attack{Name: "decode speaks of its lease with an old epoch", run: (*stage).staleEpoch,
		never: "a lease's id is 128 random bits: whoever names it with an old epoch means the same lease"}
	overDecode = &Attack{Name: "prompt and answer are over decode's pool", limits: true, run: (*stage).overDecode,
		never: "there are no such pages: the allocator cannot grant them, whoever checks a limit before"}
)

// armed runs f with a point that acts once.
func (s *stage) armed(process string, p fault.Point, with string, f func() (Seen, error)) (Seen, error) {
	if err := s.Arm(process, p, with+" times=1"); err != nil {
		return Seen{}, err
	}
	out, err := f()
	return out, errors.Join(err, s.Disarm(process, p))
}

func (s *stage) tallied(process string, p fault.Point) (int, error) {
	t, err := s.Tally(process)
	return t.Fired[p], err
}

// running is a driver's request beside the attack.
type running struct {
	stop context.CancelFunc
	done chan struct{}
	out  driver.Outcome
	err  error
}

func (s *stage) start(ctx context.Context, r driver.Request) *running {
	ctx, stop := context.WithCancel(ctx)
	b := &running{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(b.done)
		b.out, b.err = s.Driver.Run(ctx, r)
	}()
	return b
}

func (r *running) end() {
	r.stop()
	<-r.done
}

// beside keeps another tenant's pages at prefill's broker, and sends the first of them in place of the asker's.
func (s *stage) beside(ctx context.Context, how string) (Seen, error) {
	fired, err := s.tallied(brokerP, fault.MoverWire)
	if err != nil {
		return Seen{}, err
	}
	if err := s.Arm(brokerP, fault.MoverWire, "hold after=6 times=1"); err != nil { // after Attached and five pages
		return Seen{}, err
	}
	v := s.start(ctx, s.request(s.echo(other, honest), "prefill-0", "decode-0"))
	defer v.end()
	if err := s.Fired(ctx, brokerP, fault.MoverWire, fired+1); err != nil {
		return Seen{}, err
	}
	out, err := s.armed(brokerP, fault.BrokerRead, how, func() (Seen, error) { return s.ask(ctx, s.echo(asker, honest), canary.Answer) })
	return out, errors.Join(err, s.Disarm(brokerP, fault.MoverWire))
}

// earlyStart holds prefill until decode, which does not wait, is in the middle of its answer.
func (s *stage) earlyStart(ctx context.Context) (Seen, error) {
	if err := errors.Join(s.Arm(prefill0, fault.RunnerStep, "hold times=1"), s.Arm("prefill/prefill-1", fault.RunnerStep, "hold times=1"),
		s.Arm(decode0, fault.RunnerStep, "delay for=40ms"), s.Arm(decode1, fault.RunnerStep, "delay for=40ms"),
		s.Arm(decode0, fault.DecodeOwned, "drop times=1"), s.Arm(decode1, fault.DecodeOwned, "drop times=1")); err != nil {
		return Seen{}, err
	}
	type result struct {
		seen Seen
		err  error
	}
	done := make(chan result, 1)
	go func() {
		seen, err := s.ask(ctx, s.echo(asker, honest), canary.Answer)
		done <- result{seen, err}
	}()
	_ = scenario.Until(within(ctx, 5*time.Second), func() error { // decode is in the middle of its answer, or has failed
		for _, d := range []string{decode0, decode1} {
			t, err := s.Tally(d)
			if err != nil {
				return err
			}
			if t.Passed[fault.DecodeToken] > s.tokens(d)+8 {
				return nil
			}
		}
		select {
		case r := <-done:
			done <- r
			return nil
		default:
			return errors.New("decode has neither answered nor failed") // and prefill goes on: the pages come too late
		}
	})
	if err := errors.Join(s.Disarm(prefill0, fault.RunnerStep), s.Disarm("prefill/prefill-1", fault.RunnerStep)); err != nil {
		return Seen{}, err
	}
	r := <-done
	return r.seen, errors.Join(r.err, s.Disarm(decode0, fault.DecodeOwned), s.Disarm(decode1, fault.DecodeOwned))
}

func (s *stage) longerPlan(ctx context.Context) (Seen, error) {
	for _, d := range []string{decode0, decode1} {
		if err := s.Arm(d, fault.RunnerStep, "corrupt n=320 times=24"); err != nil {
			return Seen{}, err
		}
	}
	out, err := s.ask(ctx, s.echo(asker, honest), 400)
	return out, errors.Join(err, s.Disarm(decode0, fault.RunnerStep), s.Disarm(decode1, fault.RunnerStep))
}

// lateWrite: the other tenant's prefill is held in its step, and his request ends; the asker's prompt is computed by
// another worker, in the pages that were the other's if they are free; then the held step writes; then they are sent.
func (s *stage) lateWrite(ctx context.Context) (Seen, error) {
	steps, err := s.tallied(prefill0, fault.RunnerStep)
	if err != nil {
		return Seen{}, err
	}
	pages, err := s.tallied(brokerP, fault.MoverPage)
	if err != nil {
		return Seen{}, err
	}
	if err := s.Arm(prefill0, fault.RunnerStep, "hold times=1"); err != nil {
		return Seen{}, err
	}
	v := s.start(ctx, s.request(s.echo(other, honest), "prefill-0", "decode-0"))
	if err := s.Fired(ctx, prefill0, fault.RunnerStep, steps+1); err != nil {
		v.end()
		return Seen{}, err
	}
	v.end()
	if err := s.notWriting(ctx); err != nil {
		return Seen{}, err
	}
	turn := s.echo(asker, honest) // the free list turns round with each request
	if _, err := s.Driver.Run(ctx, s.request(turn, "prefill-1", "decode-0")); err != nil {
		return Seen{}, fmt.Errorf("an honest request: %w", err)
	}
	if err := s.Arm(brokerP, fault.MoverPage, "hold times=1"); err != nil {
		return Seen{}, err
	}
	e := s.echo(asker, honest)
	a := s.start(ctx, s.request(e, "prefill-1", "decode-1"))
	defer a.end()
	if err := s.Fired(ctx, brokerP, fault.MoverPage, pages+1); err != nil {
		return Seen{}, err
	}
	loops, err := s.Tally(prefill0)
	if err != nil {
		return Seen{}, err
	}
	if err := s.Disarm(prefill0, fault.RunnerStep); err != nil {
		return Seen{}, err
	}
	err = scenario.Until(within(ctx, 10*time.Second), func() error {
		t, err := s.Tally(prefill0)
		if err == nil && t.Passed[fault.RunnerLoop] == loops.Passed[fault.RunnerLoop] {
			err = errors.New("the held step is not over")
		}
		return err
	})
	if err != nil {
		return Seen{}, err
	}
	if err := s.Disarm(brokerP, fault.MoverPage); err != nil {
		return Seen{}, err
	}
	<-a.done
	out := judge(e, a.out.Tokens)
	out.Ended = ended(a.err)
	return out, nil
}

// notWriting waits until no source lease is live.
func (s *stage) notWriting(ctx context.Context) error {
	return scenario.Until(within(ctx, 10*time.Second), func() error {
		d, err := s.Describe(ctx, "broker-p")
		if err == nil && d.Pool.Writing+d.Pool.Sealed > 0 {
			err = fmt.Errorf("broker-p: %v", d.Pool)
		}
		return err
	})
}

// lateRead: decode's broker ends the asker's lease while its first step is held, and decode does not hear of it; the other
// tenant's request then gets the pages, if they are free; then the held step reads.
func (s *stage) lateRead(ctx context.Context) (Seen, error) {
	steps, err := s.tallied(decode0, fault.RunnerStep)
	if err != nil {
		return Seen{}, err
	}
	if err := errors.Join(s.Arm(decode0, fault.RunnerStep, "hold times=1"), s.Arm(decode0, fault.ClientRevoked, "drop"),
		s.Arm(brokerD, fault.BrokerDeadline, "truncate times=1 n=1500")); err != nil {
		return Seen{}, err
	}
	e := s.echo(asker, honest)
	a := s.start(ctx, s.request(e, "prefill-0", "decode-0"))
	defer a.end()
	if err := s.Fired(ctx, decode0, fault.RunnerStep, steps+1); err != nil {
		return Seen{}, err
	}
	err = scenario.Until(within(ctx, 10*time.Second), func() error {
		d, err := s.Describe(ctx, "broker-d")
		if err == nil && d.Pool.Owned > 0 {
			err = fmt.Errorf("broker-d: %v", d.Pool)
		}
		return err
	})
	if err != nil {
		return Seen{}, err
	}
	held, err := s.tallied(decode1, fault.RunnerStep)
	if err != nil {
		return Seen{}, err
	}
	turn := s.echo(other, honest)
	if _, err := s.Driver.Run(ctx, s.request(turn, "prefill-0", "decode-1")); err != nil {
		return Seen{}, fmt.Errorf("an honest request: %w", err)
	}
	if err := s.Arm(decode1, fault.RunnerStep, "hold times=1"); err != nil {
		return Seen{}, err
	}
	v := s.start(ctx, s.request(s.echo(other, honest), "prefill-0", "decode-1"))
	defer v.end()
	if err := s.Fired(ctx, decode1, fault.RunnerStep, held+1); err != nil {
		return Seen{}, err
	}
	if err := s.Disarm(decode0, fault.RunnerStep); err != nil {
		return Seen{}, err
	}
	<-a.done
	out := judge(e, a.out.Tokens)
	out.Ended = ended(a.err)
	return out, errors.Join(s.Disarm(decode1, fault.RunnerStep), s.Disarm(decode0, fault.ClientRevoked), s.Disarm(brokerD, fault.BrokerDeadline))
}

func (s *stage) staleEpoch(ctx context.Context) (Seen, error) {
	e := s.echo(asker, honest)
	return s.armed(decode0, fault.ClientEpoch, "stale-epoch", func() (Seen, error) {
		out, err := s.Driver.Run(ctx, s.request(e, "prefill-0", "decode-0"))
		seen := judge(e, out.Tokens)
		seen.Ended = ended(err)
		return seen, nil
	})
}

func (s *stage) overDecode(ctx context.Context) (Seen, error) {
	e := s.echo(asker, 300)
	r := s.request(e, "prefill-0", "decode-0")
	r.MaxNew = decodePages * 64
	r.Change = func(a *meshv1.Admission) { a.DeadlineUnixMs = time.Now().Add(20 * time.Second).UnixMilli() }
	out, err := s.Driver.Run(ctx, r)
	seen := judge(e, out.Tokens)
	seen.Ended = ended(err)
	return seen, nil
}

// within is ctx with a time; its cancel is the time's.
func within(ctx context.Context, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeoutCause(ctx, d, fmt.Errorf("%v are over", d))
	context.AfterFunc(ctx, cancel)
	return ctx
}
