package server

import (
	"context"
	"testing"

	"leasehold.dev/protos/errs"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

// A byte that changes at D after its page has arrived is met by the second look, in each page, and nobody else is blamed.
func TestSecondLookMeetsAChangedByte(t *testing.T) {
	for place := range uint32(3) {
		k := newPair(t, shm, func(c *Config) { c.CheckShare = 0 })
		r := newRequest(t, 190, 4, shm)
		dst, src := r.decode(t, k.d), r.prefill(t, k.p)
		hold := holdTurns(k.b1)
		fill(t, k.p, src, r)
		hold.pass(t, 3) // the copies
		o, err := dst.AwaitOwned(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		k.d.Mapping().Page(o.Pages()[place])[4096] ^= 1
		hold.release()
		wantKind(t, "AwaitSettled", dst.AwaitSettled(t.Context()), errs.Corrupt)
		within(t, "revoke of the destination", dst.Revoked())
		if got := k.b1.count(t, MetricIncidents, "kind", "transfer"); got != 1 {
			t.Errorf("%d transfer incidents, want 1", got)
		}
		retire(t, src, true)
		retire(t, dst, false)
		k.baseline(t)
	}
}

// held keeps a broker's only turn, and gives it away one by one.
type heldTurn struct{ b *node }

func holdTurns(b *node) heldTurn {
	_ = b.turns.take(context.Background(), "holder")
	return heldTurn{b}
}

// pass lets n turns of others go by, as they come.
func (h heldTurn) pass(t *testing.T, n int) {
	for range n {
		eventually(t, "somebody waits for a turn", func() bool {
			h.b.turns.mu.Lock()
			defer h.b.turns.mu.Unlock()
			return len(h.b.turns.order) > 0
		})
		h.b.turns.done()
		_ = h.b.turns.take(context.Background(), "holder")
	}
}

func (h heldTurn) release() { h.b.turns.done() }

// The sender's own end comes before the answer: without it nothing is settled, although everything was verified.
func TestNothingIsSettledBeforeTheSenderHasLooked(t *testing.T) {
	for _, m := range []meshv1.Mover{meshv1.Mover_MOVER_GRPC, shm} {
		t.Run(m.String(), func(t *testing.T) {
			k := newPair(t, m, func(c *Config) { c.CheckShare = 0 })
			r := newRequest(t, 190, 4, m)
			dst, src := r.decode(t, k.d), r.prefill(t, k.p)
			hold := holdTurns(k.b0)
			fill(t, k.p, src, r)
			if _, err := dst.AwaitOwned(t.Context()); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := dst.AwaitSettled(ctx); err == nil {
				t.Error("settled while the sender has not looked")
			}
			k.fleet.conns["b0"].Close() // the stream breaks
			wantKind(t, "AwaitSettled", dst.AwaitSettled(t.Context()), errs.Unavailable)
			within(t, "revoke of the destination", dst.Revoked())
			hold.release()
			retire(t, src, true)
			retire(t, dst, false)
			k.baseline(t)
		})
	}
}

// A worker that never says that it has begun keeps its own pages, and none of the sender's.
func TestTheSecondLookDoesNotWaitForTheWorker(t *testing.T) {
	for _, m := range []meshv1.Mover{meshv1.Mover_MOVER_GRPC, shm} {
		k := newPair(t, m)
		r := newRequest(t, 190, 4, m)
		dst, src := r.decode(t, k.d), r.prefill(t, k.p)
		fill(t, k.p, src, r)
		if _, err := dst.AwaitOwned(t.Context()); err != nil {
			t.Fatal(err)
		}
		k.b0.baseline(t)
		if err := dst.AwaitSettled(t.Context()); err != nil {
			t.Errorf("%v: AwaitSettled after the looks = %v", m, err)
		}
		retire(t, src, true)
		retire(t, dst, true)
		k.baseline(t)
	}
}
