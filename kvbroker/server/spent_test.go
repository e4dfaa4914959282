package server

import (
	"encoding/binary"
	"testing"
	"time"

	"leasehold.dev/kvbroker/client"
	"leasehold.dev/kvbroker/lease"
	"leasehold.dev/protos/errs"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

func numbered(i int) use {
	var a lease.Admission
	binary.LittleEndian.PutUint64(a[:], uint64(i))
	return use{a, lease.Source}
}

func TestSpentIsRememberedUntilTheDeadline(t *testing.T) {
	s, now := newSpent(), time.Unix(1000, 0)
	s.add(numbered(0), now.Add(time.Minute), now)
	wantKind(t, "a second source", s.check(numbered(0)), errs.Invalid)
	for what, u := range map[string]use{"another admission": numbered(1), "its other half": {numbered(0).admission, lease.Destination}} {
		if err := s.check(u); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	s.undo(numbered(0))
	if err := s.check(numbered(0)); err != nil {
		t.Errorf("after undo: %v", err)
	}
}

func TestSpentIsBounded(t *testing.T) {
	t.Run("by time", func(t *testing.T) {
		s, now := newSpent(), time.Unix(1000, 0)
		for i := range 50 * firstSweep {
			now = now.Add(time.Second)
			s.add(numbered(i), now.Add(time.Minute), now)
			if len(s.until) > firstSweep {
				t.Fatalf("%d are kept after %d, of which 60 live", len(s.until), i+1)
			}
		}
		wantKind(t, "the last", s.check(numbered(50*firstSweep-1)), errs.Invalid)
	})
	t.Run("by number", func(t *testing.T) {
		s, now := newSpent(), time.Unix(1000, 0)
		for i := range maxSpent + 1 {
			s.add(numbered(i), now.Add(time.Hour+time.Duration(i)), now)
		}
		if len(s.until) != maxSpent/2+1 {
			t.Errorf("%d are kept, want %d", len(s.until), maxSpent/2+1)
		}
		if s.check(numbered(0)) != nil || s.check(numbered(maxSpent-1)) == nil {
			t.Error("not those that end first were forgotten")
		}
	})
}

// A ticket that comes again while its request runs, and after it: the request does not notice.
func TestTicketIsGoodForOneLeaseOfARole(t *testing.T) {
	for _, m := range movers {
		t.Run(m.String(), func(t *testing.T) {
			k := newPair(t, m)
			r := newRequest(t, 100, 4, m)
			again := func(when string) {
				t.Helper()
				_, err := k.p.Reserve(t.Context(), client.Reservation{Admission: r.s, Role: roleSource, TokenIDs: r.ids, Pages: r.moved()})
				wantKind(t, "a second source "+when, err, errs.Invalid)
				_, err = k.d.Reserve(t.Context(), client.Reservation{Admission: r.s, Role: roleDest, TokenIDs: r.ids, Pages: r.life()})
				wantKind(t, "a second destination "+when, err, errs.Invalid)
			}
			dst, src := r.decode(t, k.d), r.prefill(t, k.p)
			again("while it runs")
			// What a prefill worker says after a Run that got no lease.
			wantKind(t, "Refuse of a Pull that a lease serves", k.p.Refuse(t.Context(), r.s, errs.New(errs.Invalid, "test")), errs.Invalid)
			fill(t, k.p, src, r)
			if _, err := bothLooks(t, dst); err != nil {
				t.Fatalf("the live request was hurt: %v", err)
			}
			retire(t, src, true)
			retire(t, dst, true)
			again("after its end")
			k.baseline(t)
		})
	}
	t.Run("solo", func(t *testing.T) {
		n := newNode(t, newFleet(t), "b1", 8)
		d, r := n.attach(t, "d0"), newRequest(t, 100, 4, meshv1.Mover_MOVER_NONE)
		l, err := d.Reserve(t.Context(), r.solo())
		if err != nil {
			t.Fatal(err)
		}
		retire(t, l, true)
		_, err = d.Reserve(t.Context(), r.solo())
		wantKind(t, "a second solo lease", err, errs.Invalid)
		n.baseline(t)
	})
}

func TestReserveThatFailedSpendsNothing(t *testing.T) {
	f := newFleet(t)
	n := newNode(t, f, "b1", 12)
	d, r := n.attach(t, "d0"), newRequest(t, 100, 4, meshv1.Mover_MOVER_GRPC)
	dest := client.Reservation{Admission: r.s, Role: roleDest, TokenIDs: r.ids, Pages: r.life()}
	_, err := d.Reserve(t.Context(), dest)
	wantKind(t, "Reserve without a peer", err, errs.Unavailable)
	newNode(t, f, "b0", 8)
	l, err := d.Reserve(t.Context(), dest)
	if err != nil {
		t.Fatal(err)
	}
	retire(t, l, false)
	n.baseline(t)
}
