package fleet_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"leasehold.dev/protos/errs"
	"leasehold.dev/router/choose"
	"leasehold.dev/router/fleet"
	"leasehold.dev/router/scripted"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) { b.mu.Lock(); defer b.mu.Unlock(); return b.b.Write(p) }
func (b *buffer) String() string              { b.mu.Lock(); defer b.mu.Unlock(); return b.b.String() }

func start(t *testing.T, m *scripted.Mesh) (*fleet.Fleet, *buffer) {
	t.Helper()
	out := &buffer{}
	f := fleet.New(m.Prefill, m.Decode, slog.New(slog.NewTextHandler(out, nil)))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); f.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return f, out
}

// until waits for a state of the decode worker d.
func until(t *testing.T, f *fleet.Fleet, what string, ok func(choose.Worker) bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	var last []choose.Worker
	for {
		last = f.Snapshot().Decode
		if len(last) == 1 && ok(last[0]) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within 10 s: %s; now %+v", what, last)
		}
	}
}

func up(w choose.Worker) bool   { return w.Up }
func down(w choose.Worker) bool { return !w.Up }

func TestTheNewestStatusCounts(t *testing.T) {
	m := scripted.New(t)
	f, log := start(t, m)
	d := m.NewDecode(m.Status("d", "b"))
	until(t, f, "the worker is up", up)
	s := m.Status("d", "b")
	s.Ready, s.Reason = false, "draining"
	d.Say(s)
	until(t, f, "the worker says that it drains", func(w choose.Worker) bool { return !w.Up && w.Reason == "draining" })
	s = m.Status("d", "b")
	s.FreePages = 7
	d.Say(s)
	until(t, f, "the worker is up again, with 7 free pages", func(w choose.Worker) bool { return w.Up && w.Free == 7 })
	if n := strings.Count(log.String(), "worker=d"); n != 3 {
		t.Errorf("%d log lines for three changes of readiness:\n%s", n, log.String())
	}
}

func TestAWorkerThatDiesIsDownAtOnceAndGoneWhenItLeaves(t *testing.T) {
	m := scripted.New(t)
	f, _ := start(t, m)
	d := m.NewDecode(m.Status("d", "b"))
	until(t, f, "the worker is up", up)
	killed := time.Now()
	d.Stop()
	until(t, f, "the worker is down", down)
	if took := time.Since(killed); took > fleet.Stale {
		t.Errorf("a killed worker was picked for %v", took)
	}
	m.Leave("decode", "d")
	for deadline := time.Now().Add(10 * time.Second); len(f.Snapshot().Decode) > 0; {
		if time.Now().After(deadline) {
			t.Fatal("a worker that left is still there")
		}
		<-m.Decode.Changed()
	}
}

func TestAWorkerThatWasLostComesBackWithItsNextStatus(t *testing.T) {
	m := scripted.New(t)
	f, _ := start(t, m)
	m.NewDecode(m.Status("d", "b"))
	until(t, f, "the worker is up", up)
	f.Lost("decode", "d")
	if w := f.Snapshot().Decode[0]; w.Up || w.Reason == "" {
		t.Errorf("a lost worker is up: %+v", w)
	}
	until(t, f, "the worker is up again", up)
}

func TestAWorkerWithAnotherNameIsNotTaken(t *testing.T) {
	m := scripted.New(t)
	f, _ := start(t, m)
	d := m.NewDecode(m.Status("d", "b"))
	until(t, f, "the worker is up", up)
	d.Say(m.Status("another", "b"))
	until(t, f, "the worker is down for its name", func(w choose.Worker) bool { return !w.Up && strings.Contains(w.Reason, "another id") })
}

func TestAnOpenBreakerTakesAWorkerOut(t *testing.T) {
	m := scripted.New(t)
	f, _ := start(t, m)
	m.NewDecode(m.Status("d", "b"))
	until(t, f, "the worker is up", up)
	for range 5 {
		_ = m.Decode.Get("d").Do(func() error { return errs.New(errs.Unavailable, "lost") })
	}
	if w := f.Snapshot().Decode[0]; w.Up || !strings.Contains(w.Reason, "breaker") {
		t.Errorf("worker %+v, want it out for its breaker", w)
	}
}

func TestRunningCallsAreCounted(t *testing.T) {
	m := scripted.New(t)
	f, _ := start(t, m)
	m.NewDecode(m.Status("d", "b"))
	until(t, f, "the worker is up", up)
	a, b := f.Use("decode", "d"), f.Use("decode", "d")
	if n := f.Snapshot().Decode[0].Open; n != 2 {
		t.Errorf("%d running calls, want 2", n)
	}
	a()
	a() // once is enough
	if n := f.Snapshot().Decode[0].Open; n != 1 {
		t.Errorf("%d running calls, want 1", n)
	}
	b()
	if n := f.Snapshot().Decode[0].Open; n != 0 {
		t.Errorf("%d running calls, want 0", n)
	}
}
