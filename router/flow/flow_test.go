package flow_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"leasehold.dev/protos/errs"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/router/apierr"
	"leasehold.dev/router/choose"
	"leasehold.dev/router/fleet"
	"leasehold.dev/router/flow"
	"leasehold.dev/router/meter"
	"leasehold.dev/router/record"
	"leasehold.dev/router/retry"
	"leasehold.dev/router/scripted"
	"leasehold.dev/router/verdict"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a mesh and a runner over it.
type world struct {
	*scripted.Mesh
	t *testing.T
	*flow.Runner
	records record.Ring
}

func newWorld(t *testing.T) *world {
	m := scripted.New(t)
	w := &world{Mesh: m, t: t, Runner: &flow.Runner{Config: flow.Config{
		Key: m.Key, ModelName: "m", Default: 16, Budget: retry.NewBudget(0.1, 10), Meter: &meter.Meter{},
		Log:   slog.New(slog.NewTextHandler(io.Discard, nil)),
		Model: choose.Model{Revision: string(m.Revision), Tokenizer: string(m.Tokenizer), Promise: 900},
		Times: flow.Times{Admit: 10 * time.Second, Verdict: 10 * time.Second, Token: 10 * time.Second, Request: 30 * time.Second, Grace: 100 * time.Millisecond},
	}}}
	w.Fleet = fleet.New(m.Prefill, m.Decode, w.Log)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); w.Fleet.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return w
}

// settle waits until the fleet has p prefill and d decode workers up.
func (w *world) settle(p, d int) {
	w.t.Helper()
	up := func(ws []choose.Worker) (n int) {
		for _, x := range ws {
			if x.Up {
				n++
			}
		}
		return n
	}
	eventually(w.t, "workers are up", func() bool { f := w.Fleet.Snapshot(); return up(f.Prefill) == p && up(f.Decode) == d })
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

func prompt(n int) []int32 { return slices.Repeat([]int32{5}, n) }

func (w *world) job(n int, maxNew uint32) flow.Job {
	c := &record.Choice{}
	e := w.records.Begin(&record.Request{ID: "r", Choices: []*record.Choice{c}})
	return flow.Job{Request: "r", Tenant: "acme", IDs: prompt(n), MaxNew: maxNew, Sampling: &decodev1.Sampling{}, Entry: e, Choice: c}
}

// answer runs a job to its end.
func (w *world) answer(ctx context.Context, job flow.Job) (string, *decodev1.Finished, error) {
	s, err := w.Start(ctx, job)
	if err != nil {
		return "", nil, err
	}
	defer s.Close()
	var text strings.Builder
	for {
		t, f, err := s.Next()
		if err != nil || f != nil {
			return text.String(), f, err
		}
		text.WriteString(t.Text)
	}
}

func TestASplitRequestIsAnsweredAndRecorded(t *testing.T) {
	for _, c := range []struct {
		name, brokerD string
		n             int
		route, mover  string
		pages         uint32
	}{
		{"two brokers, 200 tokens", "b2", 200, "split:grpc", "grpc", 4},
		{"two brokers, 65 tokens: one full page", "b2", 65, "split:grpc", "grpc", 1},
		{"two brokers, 66 tokens: a second page of one row", "b2", 66, "split:grpc", "grpc", 2},
		{"one broker", "b1", 64, "split:local", "local", 1},
		{"two tokens: one row", "b2", 2, "split:grpc", "grpc", 1},
		{"one token: nothing to move", "b2", 1, "unsplit:single-token", "none", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			p := w.NewPrefill(w.Status("p", "b1"))
			w.NewDecode(w.Status("d", c.brokerD))
			w.settle(1, 1)
			text, f, err := w.answer(t.Context(), w.job(c.n, 8))
			if err != nil || text != "The sky is blue" || f.CompletionTokens != 4 {
				t.Fatalf("answer = %q, %v, %v", text, f, err)
			}
			r := w.records.Last(1)[0].Choices[0]
			if r.Route != c.route || r.Mover != c.mover || r.PagesMoved != c.pages || r.ExpectedPages != c.pages || r.PrefillPages != c.pages ||
				!r.VerdictsEqual || r.Root != r.PrefillRoot || r.PromptTokens != uint32(c.n) || r.CompletionTokens != 4 || r.Attempts != 1 {
				t.Errorf("record = %+v", r)
			}
			if want := min(c.n-1, 1); int(p.Calls.Load()) != want {
				t.Errorf("P was called %d times, want %d", p.Calls.Load(), want)
			}
		})
	}
}

// The rows of the error table: who fails, how, and what comes of it. Each request could be retried on a second pair.
func TestFailuresBeforeTheFirstToken(t *testing.T) {
	lost := errs.New(errs.Unavailable, "peer lost")
	refuse := func(err error) func(context.Context, *meshv1.Admission) error {
		return func(context.Context, *meshv1.Admission) error { return err }
	}
	for _, c := range []struct {
		name    string
		break1  func(p *scripted.Prefill, d *scripted.Decode)
		kind    errs.Kind
		retried bool
	}{
		{"P is lost", func(p *scripted.Prefill, _ *scripted.Decode) { p.Do = refuse(lost) }, errs.Unavailable, true},
		{"D is lost before Admitted", func(_ *scripted.Prefill, d *scripted.Decode) { d.Before = refuse(lost) }, errs.Unavailable, true},
		{"D is lost after its verdict", func(_ *scripted.Prefill, d *scripted.Decode) {
			d.Step = func(context.Context, *meshv1.Admission, int) error { return lost }
		}, errs.Unavailable, true},
		{"D's Pull broke, and P finds none parked", func(p *scripted.Prefill, d *scripted.Decode) {
			p.Do = refuse(errs.New(errs.NotFound, "no Pull of the admission is parked here"))
			d.Rewrite = func(error) error { return errs.New(errs.Unavailable, "the Pull broke") }
		}, errs.Unavailable, true},
		{"D's Pull is of an older broker", func(p *scripted.Prefill, d *scripted.Decode) {
			p.Do = refuse(errs.New(errs.Stale, "another instance"))
			d.Rewrite = func(error) error { return errs.New(errs.Unavailable, "the Pull broke") }
		}, errs.Unavailable, true},
		{"P finds no Pull, and D failed its check", func(p *scripted.Prefill, d *scripted.Decode) {
			p.Do = refuse(errs.New(errs.NotFound, "no Pull of the admission is parked here"))
			d.Rewrite = func(error) error { return errs.New(errs.Corrupt, "digest") }
		}, errs.Corrupt, false},
		{"D stops and cancels its call", func(_ *scripted.Prefill, d *scripted.Decode) { d.Before = refuse(context.Canceled) }, errs.Unavailable, true},
		{"P stops and cancels its call", func(p *scripted.Prefill, d *scripted.Decode) {
			p.Do = refuse(context.Canceled)
			d.Rewrite = func(error) error { return errs.New(errs.Unavailable, "the Pull broke") }
		}, errs.Unavailable, true},
		{"D's transfer took too long", func(_ *scripted.Prefill, d *scripted.Decode) { d.Before = refuse(context.DeadlineExceeded) }, errs.Unavailable, true},
		{"P refuses for its limit", func(p *scripted.Prefill, _ *scripted.Decode) { p.Do = refuse(errs.New(errs.Limit, "200 > 100")) }, errs.Limit, false},
		{"P's pool is full", func(p *scripted.Prefill, _ *scripted.Decode) { p.Do = refuse(errs.New(errs.Exhausted, "full")) }, errs.Exhausted, false},
		{"D's pool is full", func(_ *scripted.Prefill, d *scripted.Decode) { d.Before = refuse(errs.New(errs.Exhausted, "full")) }, errs.Exhausted, false},
		{"P's check fails", func(p *scripted.Prefill, _ *scripted.Decode) { p.Do = refuse(errs.New(errs.Corrupt, "tag")) }, errs.Corrupt, false},
		{"D's check fails", func(_ *scripted.Prefill, d *scripted.Decode) { d.Before = refuse(errs.New(errs.Corrupt, "digest")) }, errs.Corrupt, false},
		{"D has a bug", func(_ *scripted.Prefill, d *scripted.Decode) { d.Before = refuse(errs.New(errs.Internal, "bug")) }, errs.Internal, false},
		{"P says a row too few", func(p *scripted.Prefill, _ *scripted.Decode) { p.Twist = func(v *meshv1.PrefillVerdict) { v.Rows-- } }, errs.Corrupt, false},
		{"D found a page too few", func(_ *scripted.Prefill, d *scripted.Decode) { d.Twist = func(v *meshv1.DecodeVerdict) { v.Pages-- } }, errs.Corrupt, false},
		{"D ends without a word", func(_ *scripted.Prefill, d *scripted.Decode) {
			d.Step = func(context.Context, *meshv1.Admission, int) error { return scripted.ErrSilence }
		}, errs.Corrupt, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			p, d := w.NewPrefill(w.Status("p1", "b1")), w.NewDecode(w.Status("d1", "b2"))
			c.break1(p, d)
			w.settle(1, 1)
			text, _, err := w.answer(t.Context(), w.job(200, 8))
			if err == nil || errs.KindOf(err) != c.kind || text != "" {
				t.Fatalf("one pair: %q, %v (%v), want kind %v and no text", text, err, errs.KindOf(err), c.kind)
			}
			if got := d.Calls.Load(); got != 1 {
				t.Fatalf("one pair: D was called %d times, want 1", got)
			}
			eventually(t, "no call is left at either half", func() bool { return p.Live.Load() == 0 && d.Live.Load() == 0 })

			w.NewPrefill(w.Status("p2", "b1"))
			w.NewDecode(w.Status("d2", "b2"))
			w.settle(2, 2)
			if !c.retried {
				for range 64 { // until the broken half was picked at least once
					if _, _, err = w.answer(t.Context(), w.job(200, 8)); err != nil {
						break
					}
				}
				if err == nil || w.records.Last(1)[0].Choices[0].Attempts != 1 {
					t.Fatalf("two pairs: %v after %d attempts, want a failure after 1", err, w.records.Last(1)[0].Choices[0].Attempts)
				}
				return
			}
			again := false
			for range 200 { // until the broken half was picked first, and a good pair second
				text, _, err := w.answer(t.Context(), w.job(200, 8))
				attempts := w.records.Last(1)[0].Choices[0].Attempts
				if again = attempts == 2 && err == nil && text == "The sky is blue"; again {
					break
				}
			}
			if !again {
				t.Fatal("two pairs: no request was answered by a second attempt")
			}
		})
	}
}

func TestAFailureAfterTheFirstTokenIsNotRetried(t *testing.T) {
	for name, end := range map[string]error{"lost": errs.New(errs.Unavailable, "gone"), "silent": scripted.ErrSilence, "check": errs.New(errs.Corrupt, "NaN")} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.NewPrefill(w.Status("p", "b1"))
			for _, id := range []string{"d1", "d2"} {
				w.NewDecode(w.Status(id, "b2")).Step = func(_ context.Context, _ *meshv1.Admission, i int) error {
					if i == 2 {
						return end
					}
					return nil
				}
			}
			w.settle(1, 2)
			text, f, err := w.answer(t.Context(), w.job(200, 8))
			if text != "The sky" || f != nil || err == nil {
				t.Fatalf("answer = %q, %v, %v; want two words and an error", text, f, err)
			}
			if a := w.records.Last(1)[0].Choices[0].Attempts; a != 1 {
				t.Errorf("%d attempts, want 1", a)
			}
		})
	}
}

func TestDsLastWordIsChecked(t *testing.T) {
	for name, twist := range map[string]func(*decodev1.Finished){
		"fewer prompt tokens": func(f *decodev1.Finished) { f.PromptTokens-- },
		"more new tokens":     func(f *decodev1.Finished) { f.CompletionTokens++ },
		"other tokens":        func(f *decodev1.Finished) { f.OutputDigest[0] ^= 1 },
		"no digest":           func(f *decodev1.Finished) { f.OutputDigest = nil },
		"no logit digest":     func(f *decodev1.Finished) { f.LogitDigest = nil },
		"a zero logit digest": func(f *decodev1.Finished) { f.LogitDigest = make([]byte, 32) },
		"half a logit digest": func(f *decodev1.Finished) { f.LogitDigest = f.LogitDigest[:16] },
		"no reason":           func(f *decodev1.Finished) { f.Reason = 0 },
		"another class":       func(f *decodev1.Finished) { f.NumericsClass = "x86-fma-1" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.NewPrefill(w.Status("p", "b1"))
			w.NewDecode(w.Status("d", "b2")).End = twist
			w.settle(1, 1)
			if _, f, err := w.answer(t.Context(), w.job(200, 8)); errs.KindOf(err) != errs.Corrupt || f != nil {
				t.Fatalf("answer = %v, %v; want Corrupt", f, err)
			}
		})
	}
}

func TestAnAnswerWithoutTokensIsCorrupt(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(*scripted.Decode)
		text string // what goes out before
	}{
		{"Finished alone, and nothing sampled", func(d *scripted.Decode) { d.Text = nil }, ""},
		{"text of no token", func(d *scripted.Decode) {
			d.Tokens = func(_ *decodev1.Sampling, i int, text string) *decodev1.Tokens {
				t := &decodev1.Tokens{Text: text}
				if i != 2 {
					t.Tokens = []*decodev1.TokenInfo{{Id: int32(100 + i)}}
				}
				return t
			}
		}, "The sky"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.NewPrefill(w.Status("p", "b1"))
			c.set(w.NewDecode(w.Status("d", "b2")))
			w.settle(1, 1)
			if text, f, err := w.answer(t.Context(), w.job(200, 8)); errs.KindOf(err) != errs.Corrupt || f != nil || text != c.text {
				t.Fatalf("answer = %q, %v, %v; want Corrupt after %q", text, f, err, c.text)
			}
		})
	}
}

func TestMoreTokensThanAdmittedAreCorrupt(t *testing.T) {
	w := newWorld(t)
	w.NewPrefill(w.Status("p", "b1"))
	w.NewDecode(w.Status("d", "b2"))
	w.settle(1, 1)
	if text, _, err := w.answer(t.Context(), w.job(200, 3)); errs.KindOf(err) != errs.Corrupt || text != "The sky is" {
		t.Fatalf("answer = %q, %v; want Corrupt at the fourth token", text, err)
	}
}

func TestCancelEndsBothCallsAtOnce(t *testing.T) {
	w := newWorld(t)
	p, d := w.NewPrefill(w.Status("p", "b1")), w.NewDecode(w.Status("d", "b2"))
	entered := make(chan struct{})
	p.Do = func(ctx context.Context, _ *meshv1.Admission) error {
		close(entered)
		<-ctx.Done()
		return ctx.Err()
	}
	w.settle(1, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-entered; cancel() }()
	start := time.Now()
	_, _, err := w.answer(ctx, w.job(200, 8))
	if !errors.Is(err, context.Canceled) || apierr.From(err, "").HTTP != apierr.StatusCancelled {
		t.Fatalf("error %v, want a cancel", err)
	}
	eventually(t, "both calls ended", func() bool { return p.Live.Load() == 0 && d.Live.Load() == 0 })
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("took %v", took)
	}
	if p.Calls.Load() != 1 || d.Calls.Load() != 1 {
		t.Errorf("%d and %d calls: a cancel was retried", p.Calls.Load(), d.Calls.Load())
	}
	if ok := func() bool { f := w.Fleet.Snapshot(); return f.Prefill[0].Up && f.Decode[0].Up }(); !ok {
		t.Error("a tenant's cancel took a worker out")
	}
}

func TestAWorkerThatNeverAnswersIsLeftAlone(t *testing.T) {
	hang := func(ctx context.Context, _ *meshv1.Admission) error { <-ctx.Done(); return ctx.Err() }
	for _, half := range []string{"P", "D"} {
		t.Run(half, func(t *testing.T) {
			w := newWorld(t)
			w.Times.Admit, w.Times.Verdict = 50*time.Millisecond, 50*time.Millisecond
			p, d := w.NewPrefill(w.Status("p", "b1")), w.NewDecode(w.Status("d", "b2"))
			if half == "P" {
				p.Do = hang
			} else {
				d.Before = hang
			}
			w.settle(1, 1)
			for range 3 {
				if _, _, err := w.answer(t.Context(), w.job(200, 8)); errs.KindOf(err) != errs.Unavailable {
					t.Fatalf("error %v, want Unavailable", err)
				}
			}
			f := w.Fleet.Snapshot()
			if open := map[string]bool{"P": !f.Prefill[0].Up, "D": !f.Decode[0].Up}; !open[half] || len(open) == 2 && open["P"] == open["D"] {
				t.Errorf("breakers open: %v, want only %s's (prefill %q, decode %q)", open, half, f.Prefill[0].Reason, f.Decode[0].Reason)
			}
		})
	}
}

// A bug of one half opens that half's breaker, whatever the other half sees of it.
func TestABugOpensTheBreakerOfItsOwnWorker(t *testing.T) {
	bug, gone := errs.New(errs.Internal, "bug"), errs.New(errs.Unavailable, "the Pull broke")
	for _, c := range []struct {
		name   string
		set    func(*scripted.Prefill, *scripted.Decode)
		kind   errs.Kind
		pd, dd bool // whose breaker opens
	}{
		{"P's bug, D sees its Pull break", func(p *scripted.Prefill, d *scripted.Decode) {
			p.Do = func(context.Context, *meshv1.Admission) error { return bug }
			d.Rewrite = func(error) error { return gone }
		}, errs.Internal, true, false},
		{"P's bug, D hears nothing", func(p *scripted.Prefill, d *scripted.Decode) {
			p.Do = func(context.Context, *meshv1.Admission) error { return bug }
			d.Wait = func(ctx context.Context, _ *meshv1.Admission) error { <-ctx.Done(); return ctx.Err() }
		}, errs.Internal, true, false},
		{"D's bug, P hears nothing", func(p *scripted.Prefill, d *scripted.Decode) {
			p.Do = func(ctx context.Context, _ *meshv1.Admission) error { <-ctx.Done(); return ctx.Err() }
			d.Wait = func(context.Context, *meshv1.Admission) error { return bug }
		}, errs.Internal, false, true},
		{"D's pool is full, P hears nothing", func(p *scripted.Prefill, d *scripted.Decode) {
			p.Do = func(ctx context.Context, _ *meshv1.Admission) error { <-ctx.Done(); return ctx.Err() }
			d.Wait = func(context.Context, *meshv1.Admission) error { return errs.New(errs.Exhausted, "full") }
		}, errs.Exhausted, false, false},
		{"P's lie is no bug of D's", func(p *scripted.Prefill, _ *scripted.Decode) {
			p.Twist = func(v *meshv1.PrefillVerdict) { v.Rows-- }
		}, errs.Corrupt, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			p, d := w.NewPrefill(w.Status("p", "b1")), w.NewDecode(w.Status("d", "b2"))
			c.set(p, d)
			w.settle(1, 1)
			for range 3 {
				if _, _, err := w.answer(t.Context(), w.job(200, 8)); errs.KindOf(err) != c.kind || errors.Is(err, context.Canceled) {
					t.Fatalf("error %v (%v), want kind %v", err, errs.KindOf(err), c.kind)
				}
			}
			f := w.Fleet.Snapshot()
			if f.Prefill[0].Up == c.pd || f.Decode[0].Up == c.dd {
				t.Errorf("open: P %v (%q), D %v (%q); want %v and %v", !f.Prefill[0].Up, f.Prefill[0].Reason, !f.Decode[0].Up, f.Decode[0].Reason, c.pd, c.dd)
			}
		})
	}
}

// One half knows that a check failed; the other sees only that its peer went away.
func TestAnEchoOfACorruptHalfIsNotRetried(t *testing.T) {
	gone, failed := errs.New(errs.Unavailable, "the Pull broke"), errs.New(errs.Corrupt, "page 3: digest differs")
	for who, errors := range map[string]struct{ p, d error }{"D knows": {gone, failed}, "P knows": {failed, gone}} {
		t.Run(who, func(t *testing.T) {
			w := newWorld(t)
			for _, id := range []string{"p1", "p2"} {
				w.NewPrefill(w.Status(id, "b1")).Do = func(context.Context, *meshv1.Admission) error { return errors.p }
			}
			var calls []*scripted.Decode
			for _, id := range []string{"d1", "d2"} {
				d := w.NewDecode(w.Status(id, "b2"))
				d.Rewrite = func(error) error { return errors.d }
				calls = append(calls, d)
			}
			w.settle(2, 2)
			_, _, err := w.answer(t.Context(), w.job(200, 8))
			if errs.KindOf(err) != errs.Corrupt {
				t.Fatalf("error %v, want the failed check", err)
			}
			if n := calls[0].Calls.Load() + calls[1].Calls.Load(); n != 1 {
				t.Errorf("%d attempts, want 1", n)
			}
		})
	}
}

// D gives its verdict, and a kernel then finds a foreign tag, while P is still at work and hears only that the transfer broke.
func TestACheckThatFailsAfterDsVerdictIsNotRetried(t *testing.T) {
	w := newWorld(t)
	found := make(chan struct{})
	for _, id := range []string{"p1", "p2"} {
		w.NewPrefill(w.Status(id, "b1")).After = func(context.Context, *meshv1.Admission) error {
			<-found
			return errs.New(errs.Unavailable, "lease revoked: the transfer broke")
		}
	}
	d := w.NewDecode(w.Status("d1", "b2"))
	d.Step = func(context.Context, *meshv1.Admission, int) error {
		close(found)
		return errs.New(errs.Corrupt, "page 3: foreign tag")
	}
	w.settle(2, 1)
	if _, _, err := w.answer(t.Context(), w.job(200, 8)); errs.KindOf(err) != errs.Corrupt {
		t.Fatalf("error %v, want the failed check", err)
	}
	if n := d.Calls.Load(); n != 1 {
		t.Errorf("%d attempts, want 1", n)
	}
}

func TestTheRetryBudgetEnds(t *testing.T) {
	w := newWorld(t)
	w.Budget = retry.NewBudget(0, 2)
	for _, id := range []string{"p1", "p2"} {
		w.NewPrefill(w.Status(id, "b1")).Do = func(context.Context, *meshv1.Admission) error { return errs.New(errs.Unavailable, "gone") }
	}
	d := w.NewDecode(w.Status("d", "b2"))
	w.settle(2, 1)
	for range 5 {
		if _, _, err := w.answer(t.Context(), w.job(200, 8)); errs.KindOf(err) != errs.Unavailable {
			t.Fatalf("error %v, want Unavailable", err)
		}
	}
	if n := d.Calls.Load(); n != 5+2 {
		t.Errorf("%d attempts for 5 requests and 2 retries, want 7", n)
	}
}

func TestEachAttemptHasItsOwnAdmission(t *testing.T) {
	w := newWorld(t)
	seen := make(chan *meshv1.Admission, 4)
	for _, id := range []string{"p1", "p2"} {
		w.NewPrefill(w.Status(id, "b1"))
	}
	d := w.NewDecode(w.Status("d", "b2"))
	d.Before = func(_ context.Context, a *meshv1.Admission) error {
		seen <- a
		if len(seen) == 1 {
			return errs.New(errs.Unavailable, "once")
		}
		return nil
	}
	w.settle(2, 1)
	if _, _, err := w.answer(t.Context(), w.job(200, 8)); err != nil {
		t.Fatal(err)
	}
	a, b := <-seen, <-seen
	if string(a.Id) == string(b.Id) || string(a.Nonce) == string(b.Nonce) || string(a.PromptDigest) == string(b.PromptDigest) {
		t.Error("the second attempt used the first one's id, nonce or digest")
	}
	if a.Prefill == b.Prefill {
		t.Errorf("both attempts went to %s", a.Prefill)
	}
	if a.Tenant != "acme" || a.MaxNewTokens != 8 || a.PromptTokens != 200 || a.DeadlineUnixMs <= time.Now().UnixMilli() {
		t.Errorf("admission %v", a)
	}
}

func TestTheLimitIsSaidBeforeAnythingIsAsked(t *testing.T) {
	w := newWorld(t)
	ps := w.Status("p", "b1")
	ps.LimitTokens = 300
	w.NewPrefill(ps)
	d := w.NewDecode(w.Status("d", "b2"))
	w.settle(1, 1)
	for _, c := range []struct {
		n      int
		maxNew uint32
		ok     bool
	}{{299, 8, true}, {300, 8, true}, {301, 8, false}, {300, 600, true}, {300, 601, false}, {300, 0, true}} {
		before := d.Calls.Load()
		_, _, err := w.answer(t.Context(), w.job(c.n, c.maxNew))
		e, _ := apierr.As(err)
		switch {
		case c.ok && err != nil:
			t.Errorf("n %d, max_new %d: %v", c.n, c.maxNew, err)
		case !c.ok && (e == nil || e.Code != apierr.CodeContextLength || !strings.Contains(e.Message, "300") || !strings.Contains(e.Message, "900")):
			t.Errorf("n %d, max_new %d: %v, want context_length_exceeded with both numbers", c.n, c.maxNew, err)
		case !c.ok && d.Calls.Load() != before:
			t.Errorf("n %d, max_new %d: D was asked", c.n, c.maxNew)
		}
	}
}

func TestDecodeAloneServesWhenNoPrefillWorkerIsLeft(t *testing.T) {
	w := newWorld(t)
	s := w.Status("d", "b2")
	s.SelfPrefill = true
	w.NewDecode(s)
	w.settle(0, 1)
	text, _, err := w.answer(t.Context(), w.job(200, 8))
	if r := w.records.Last(1)[0].Choices[0]; err != nil || text != "The sky is blue" || r.Route != "unsplit:no-prefill" || r.PagesMoved != 0 {
		t.Fatalf("answer = %q, %v by %+v", text, err, r)
	}
}

func TestADisagreementNamesItsField(t *testing.T) {
	w := newWorld(t)
	w.NewPrefill(w.Status("p", "b1")).Twist = func(v *meshv1.PrefillVerdict) { v.Root[5]++ }
	w.NewDecode(w.Status("d", "b2"))
	w.settle(1, 1)
	_, _, err := w.answer(t.Context(), w.job(200, 8))
	var dis *verdict.Disagreement
	if !errors.As(err, &dis) || dis.Field != "decode.root" {
		t.Fatalf("error %v, want a disagreement on decode.root", err)
	}
}
