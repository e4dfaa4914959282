// Package registrytest is the contract of registry.Registry as a test suite, run against every implementation.
package registrytest

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"leasehold.dev/mesh/registry"
	"leasehold.dev/protos/errs"
)

// TTL is what the registries of a [Backend] are to be opened with.
const TTL = time.Second

// patience is how long a test waits for what must come: long, since the machine may be slow.
const patience = 60 * time.Second

// Backend is a real registry server and a way to open clients.
type Backend struct {
	// Open is a new client, closed at the test's end. Each stands for a process.
	Open func(t *testing.T) registry.Registry
	// Kill ends the server without a word; Restart starts it again at the same address. Restart forgets what is kept in
	// memory only.
	Kill, Restart func(t *testing.T)
}

// Run runs the suite. start makes a server of its own for each test.
func Run(t *testing.T, start func(t *testing.T) Backend) {
	for _, c := range []struct {
		name string
		f    func(*testing.T, Backend)
	}{
		{"an instance is listed while it passes", listedWhilePassing},
		{"an instance that leaves is gone at once", leaves},
		{"an instance that dies goes with its TTL", dies},
		{"address and meta arrive, and a new registration replaces them", carries},
		{"sets are sorted and hold one service only", sorted},
		{"an instance that does not pass is never seen", neverSeen},
		{"operators see also what does not pass", lists},
		{"a malformed instance or service is refused", refuses},
		{"the last set stands while the registry is away, and all return after", away},
		{"a process that starts before the registry is listed later", early},
		{"a watch ends with its context", ends},
	} {
		t.Run(c.name, func(t *testing.T) { c.f(t, start(t)) })
	}
}

func inst(id string) registry.Instance {
	return registry.Instance{Service: "decode", ID: id, Address: "127.0.0.1:7000", Meta: map[string]string{"broker": "kv-" + id}}
}

func well(context.Context) error { return nil }

// switchable is a self-check that a test turns off and on.
type switchable struct{ ill atomic.Bool }

func (s *switchable) check(context.Context) error {
	if s.ill.Load() {
		return errors.New("switched off")
	}
	return nil
}

func register(t *testing.T, r registry.Registry, in registry.Instance, check func(context.Context) error) (leave func()) {
	t.Helper()
	out, err := r.Register(t.Context(), in, check)
	if err != nil {
		t.Fatalf("Register(%s): %v", in.ID, err)
	}
	leave = func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := out(ctx); err != nil {
			t.Errorf("leave of %s: %v", in.ID, err)
		}
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = out(ctx) // the server may be gone; the call joins the beats all the same
	})
	return leave
}

// watcher reads a watch.
type watcher struct {
	t    *testing.T
	sets <-chan []registry.Instance
	last []registry.Instance
}

func watch(t *testing.T, r registry.Registry, service string) *watcher {
	t.Helper()
	sets, err := r.Watch(t.Context(), service)
	if err != nil {
		t.Fatalf("Watch(%s): %v", service, err)
	}
	return &watcher{t: t, sets: sets}
}

// until reads sets until one is ids, separated by spaces, and returns it.
func (w *watcher) until(ids string) []registry.Instance {
	w.t.Helper()
	return w.untilTrue(ids, func(set []registry.Instance) bool { return join(set) == ids })
}

func (w *watcher) untilTrue(what string, ok func([]registry.Instance) bool) []registry.Instance {
	w.t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		select {
		case set, open := <-w.sets:
			if !open {
				w.t.Fatalf("the watch ended while waiting for %q", what)
			}
			if w.last = set; ok(set) {
				return set
			}
		case <-timeout.C:
			w.t.Fatalf("after %v the set is still %q, want %q", patience, join(w.last), what)
		}
	}
}

// stays fails if another set than ids comes within d.
func (w *watcher) stays(ids string, d time.Duration) {
	w.t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case set, open := <-w.sets:
			if w.last = set; !open || join(set) != ids {
				w.t.Fatalf("the set became %q, want %q to stay", join(set), ids)
			}
		case <-timer.C:
			return
		}
	}
}

func join(set []registry.Instance) string {
	var ids []string
	for _, in := range set {
		ids = append(ids, in.ID)
	}
	return strings.Join(ids, " ")
}

func listedWhilePassing(t *testing.T, b Backend) {
	w := watch(t, b.Open(t), "decode")
	w.until("")
	var s switchable
	register(t, b.Open(t), inst("d1"), s.check)
	w.until("d1")
	s.ill.Store(true)
	w.until("")
	s.ill.Store(false)
	w.until("d1")
	w.stays("d1", 3*TTL)
}

func leaves(t *testing.T, b Backend) {
	w := watch(t, b.Open(t), "decode")
	leave := register(t, b.Open(t), inst("d1"), well)
	register(t, b.Open(t), inst("d2"), well)
	w.until("d1 d2")
	leave()
	w.until("d2")
	leave()
	w.stays("d2", TTL)
}

func dies(t *testing.T, b Backend) {
	w := watch(t, b.Open(t), "decode")
	ctx, kill := context.WithCancel(t.Context())
	if _, err := b.Open(t).Register(ctx, inst("d1"), well); err != nil {
		t.Fatal(err)
	}
	w.until("d1")
	kill()
	w.until("")
}

func carries(t *testing.T, b Backend) {
	w := watch(t, b.Open(t), "decode")
	in := inst("d1")
	leave := register(t, b.Open(t), in, well)
	if got := w.until("d1")[0]; !got.Equal(in) {
		t.Errorf("got %+v, want %+v", got, in)
	}
	leave()
	w.until("")
	in.Address, in.Meta = "127.0.0.1:7001", maps.Clone(in.Meta)
	in.Meta["movers"] = "local,grpc"
	register(t, b.Open(t), in, well)
	if got := w.until("d1")[0]; !got.Equal(in) {
		t.Errorf("got %+v, want %+v", got, in)
	}
}

func sorted(t *testing.T, b Backend) {
	for _, id := range []string{"d2", "d10", "d1"} {
		register(t, b.Open(t), inst(id), well)
	}
	other := inst("p1")
	other.Service = "prefill"
	register(t, b.Open(t), other, well)
	decode, prefill := watch(t, b.Open(t), "decode"), watch(t, b.Open(t), "prefill")
	decode.until("d1 d10 d2")
	prefill.until("p1")
}

func neverSeen(t *testing.T, b Backend) {
	w := watch(t, b.Open(t), "decode")
	w.until("")
	register(t, b.Open(t), inst("d1"), func(context.Context) error { return errors.New("never") })
	w.stays("", 2*TTL)
}

// lister is what package discover asks of both registries.
type lister interface {
	List(ctx context.Context, service string) ([]registry.Listed, error)
}

func lists(t *testing.T, b Backend) {
	w := watch(t, b.Open(t), "decode")
	r := b.Open(t)
	ask, ok := r.(lister)
	if !ok {
		t.Fatalf("%T lists nothing", r)
	}
	var s switchable
	register(t, b.Open(t), inst("d2"), s.check)
	register(t, b.Open(t), inst("d1"), well)
	w.until("d1 d2")
	s.ill.Store(true)
	w.until("d1")
	all, err := ask.List(t.Context(), "decode")
	if err != nil || len(all) != 2 || !all[0].Passing || all[1].Passing {
		t.Fatalf("List = %v, %v; want d1 that passes and d2 that does not", all, err)
	}
	if !all[0].Equal(inst("d1")) || !all[1].Equal(inst("d2")) {
		t.Errorf("List = %v, want both with address and meta", all)
	}
	if other, err := ask.List(t.Context(), "prefill"); err != nil || len(other) != 0 {
		t.Errorf("List of a service of nobody = %v, %v", other, err)
	}
	if _, err := ask.List(t.Context(), "a b"); errs.KindOf(err) != errs.Invalid {
		t.Errorf("List of a malformed service = %v, want invalid", err)
	}
	b.Kill(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if old, err := ask.List(ctx, "decode"); err == nil {
		t.Errorf("List = %v while the registry is away, want an error: never what was true before", old)
	}
	b.Restart(t)
}

func refuses(t *testing.T, b Backend) {
	r, bad := b.Open(t), inst("d1")
	bad.Address = "nowhere"
	if _, err := r.Register(t.Context(), bad, well); errs.KindOf(err) != errs.Invalid {
		t.Errorf("Register = %v, want invalid", err)
	}
	if _, err := r.Watch(t.Context(), "a/b"); errs.KindOf(err) != errs.Invalid {
		t.Errorf("Watch = %v, want invalid", err)
	}
}

func away(t *testing.T, b Backend) {
	w := watch(t, b.Open(t), "decode")
	var s switchable
	register(t, b.Open(t), inst("d1"), s.check)
	register(t, b.Open(t), inst("d2"), well)
	w.until("d1 d2")
	b.Kill(t)
	w.stays("d1 d2", 2*TTL)
	b.Restart(t)
	w.stays("d1 d2", 4*TTL) // longer than instances are held: both beat again
	// One that died meanwhile is held as well: nobody can tell it from one that has not beaten yet.
	ctx, kill := context.WithCancel(t.Context())
	if _, err := b.Open(t).Register(ctx, inst("d3"), well); err != nil {
		t.Fatal(err)
	}
	w.until("d1 d2 d3")
	b.Kill(t)
	kill()
	b.Restart(t)
	w.stays("d1 d2 d3", TTL)
	w.until("d1 d2")
	s.ill.Store(true)
	w.until("d2")
	fresh := watch(t, b.Open(t), "decode")
	fresh.until("d2")
}

func early(t *testing.T, b Backend) {
	b.Kill(t)
	w := watch(t, b.Open(t), "decode")
	register(t, b.Open(t), inst("d1"), well)
	b.Restart(t)
	w.until("d1")
}

func ends(t *testing.T, b Backend) {
	ctx, cancel := context.WithCancel(t.Context())
	sets, err := b.Open(t).Watch(ctx, "decode")
	if err != nil {
		t.Fatal(err)
	}
	<-sets
	cancel()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		select {
		case _, open := <-sets:
			if !open {
				return
			}
		case <-timeout.C:
			t.Fatal("the channel is still open after the context's end")
		}
	}
}
