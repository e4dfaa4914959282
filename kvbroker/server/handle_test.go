package server

import (
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"

	"leasehold.dev/kvbroker/attach"
	"leasehold.dev/kvbroker/client"
	"leasehold.dev/kvbroker/lease"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

// A worker of other weights comes back each second for as long as it runs.
func TestWorkerThatDisagreesGetsNothingAndLeavesNothing(t *testing.T) {
	n := newNode(t, newFleet(t), "b1", 4)
	hash := small.Hash()
	good := client.Info{LayoutHash: hash[:], ModelRevision: revision[:], TokenizerRevision: tokenizer[:], NumericsClass: "ref-1",
		PageBytes: small.PageBytes()}
	for want, change := range map[string]func(*client.Info){
		"layout hash is 00":                                func(i *client.Info) { i.LayoutHash = make([]byte, 32) },
		"model revision is 00":                             func(i *client.Info) { i.ModelRevision = make([]byte, 32) },
		"tokenizer revision is 00":                         func(i *client.Info) { i.TokenizerRevision = make([]byte, 32) },
		"numerics class is x86-fma-1, broker b1 has ref-1": func(i *client.Info) { i.NumericsClass = "x86-fma-1" },
		"page size is 1, broker b1 has":                    func(i *client.Info) { i.PageBytes = 1 },
	} {
		for range maxHandles/5 + 1 {
			i := good
			change(&i)
			_, err := client.Attach(t.Context(), client.Config{Dir: n.dir, Worker: "d0", Expect: i})
			if errs.KindOf(err) != errs.Invalid || !strings.Contains(err.Error(), want) {
				t.Fatalf("Attach = %v, want that the %s", err, want)
			}
		}
	}
	n.mu.Lock()
	if len(n.handles) != 0 || n.epoch != 0 {
		t.Errorf("%d handles are left, and %d were made", len(n.handles), n.epoch)
	}
	n.mu.Unlock()
	c, err := client.Attach(t.Context(), client.Config{Dir: n.dir, Worker: "d0", Expect: good})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// visit attaches, with nothing to disagree about, and hangs up.
func (n *node) visit(t *testing.T) lease.Attach {
	t.Helper()
	s, err := attach.Dial(t.Context(), n.dir, "d0", attach.Want{})
	if err != nil {
		t.Fatal(err)
	}
	s.Pool.Close()
	s.Tags.Close()
	token := lease.Attach(s.Offer.Attach)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the broker has seen it hang up", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.handles[token].hungUp
	})
	return token
}

func (n *node) tokens() []lease.Attach {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Keys(n.handles))
}

func TestWorkerMayAttachAnewForAsLongAsItLives(t *testing.T) {
	n := newNode(t, newFleet(t), "b1", 4)
	n.visit(t)
	before := runtime.NumGoroutine()
	for range maxHandles + 1 {
		n.visit(t)
	}
	if got := len(n.tokens()); got != 1 {
		t.Errorf("%d handles of one process without a lease, want 1", got)
	}
	if got := n.count(t, MetricWorkers, "", ""); got != 1 {
		t.Errorf("%d workers at the table, want 1", got)
	}
	eventually(t, "no goroutine of an earlier handle", func() bool { return runtime.NumGoroutine() <= before+8 })
}

func TestLaterHandleStandsForItsProcess(t *testing.T) {
	t.Run("as a suspect", func(t *testing.T) {
		n := newNode(t, newFleet(t), "b1", 4)
		old := n.visit(t)
		n.mu.Lock()
		n.withheld[3] = suspects{old: {}}
		n.mu.Unlock()
		later := n.visit(t)
		n.mu.Lock()
		defer n.mu.Unlock()
		if s := n.withheld[3]; len(s) != 1 || !maps.Equal(s, suspects{later: {}}) {
			t.Errorf("suspects are %v, want the later handle %v", s, later)
		}
	})
	t.Run("but not while the old one has a lease", func(t *testing.T) {
		n := newNode(t, newFleet(t), "b1", 4)
		w, token := n.raw(t, "d0")
		r := newRequest(t, 100, 29, none)
		got, err := w.Reserve(t.Context(), &brokerv1.ReserveRequest{RequestId: []byte("0123456789abcdef"), Attach: token, Admission: r.s, Role: roleSolo,
			TokenIds: r.ids, Pages: r.life()})
		if err != nil {
			t.Fatal(err)
		}
		n.mu.Lock()
		h := n.handles[lease.Attach(token)]
		n.mu.Unlock()
		n.hangUp(h, "test")
		n.visit(t)
		if !slices.Contains(n.tokens(), lease.Attach(token)) || n.states()[lease.Quarantine] != r.life() {
			t.Fatalf("the handle is gone, states %v", n.states())
		}
		if _, err := w.Retire(t.Context(), &brokerv1.RetireRequest{Attach: token, Lease: got.Lease, Epoch: got.Epoch}); err != nil {
			t.Errorf("Retire from the dead handle: %v", err)
		}
		n.baseline(t)
		n.visit(t)
		if got := len(n.tokens()); got != 1 {
			t.Errorf("%d handles after its lease was proven, want 1", got)
		}
	})
	t.Run("and not for another process", func(t *testing.T) {
		k := remotePair(t)
		r := newRequest(t, 100, 4, meshv1.Mover_MOVER_GRPC)
		dst := r.decode(t, k.d)
		p := startWorker(t, k.b0, r, "hang up")
		if _, err := dst.AwaitOwned(t.Context()); err == nil {
			t.Error("pages of a worker that hung up are owned")
		}
		retire(t, dst, false)
		k.b0.mu.Lock()
		for _, h := range k.b0.held {
			k.b0.reportLocked(lease.Retired{Ref: h.ref, Kind: errs.Unavailable})
		}
		k.b0.mu.Unlock()
		k.baseline(t)
		k.b0.visit(t)
		if got := len(k.b0.tokens()); got != 2 {
			t.Errorf("%d handles of 2 processes, want 2", got)
		}
		p.kill(t)
		eventually(t, "the process is gone", func() bool { return len(k.b0.tokens()) == 1 })
	})
}
