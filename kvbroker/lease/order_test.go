package lease

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/pagesum"
)

// TestEndsInEveryOrder takes a lease of each role into each state, with its worker and its mover pending, and ends it by
// every order of bad news and proofs. Whatever the order: one Zero, after the last proof and not before, and the pool
// back at its baseline.
func TestEndsInEveryOrder(t *testing.T) {
	id, ref := name16[ID]("a"), Ref{name16[ID]("a"), name16[Attach]("w"), 7}
	seal := func(i, rows uint32) PageSeal { return PageSeal{i, rows, pagesum.Digest{1, byte(i)}} }
	reserve := func(r Role, moved uint32) Reserve {
		return Reserve{Lease: id, Attach: ref.Attach, Role: r, Tenant: "acme", Pages: 2, Moved: moved, Rows: 100}
	}
	source, destination := reserve(Source, 0), reserve(Destination, 2)
	arrived := []Event{destination, PullStarted{id}, Arrived{id, 0}, Arrived{id, 1}}
	owned := slices.Concat(arrived, []Event{PullEnded{id, true}, Verify{id}, Verified{id}})
	for _, tt := range []struct {
		name   string
		before []Event
		movers int
		worked bool
	}{
		{"solo writing", []Event{reserve(Solo, 0)}, 0, true},
		{"solo half sealed", []Event{reserve(Solo, 0), Seal{ref, []PageSeal{seal(0, 64)}}}, 0, true},
		{"source parked", []Event{source}, 0, true},
		{"source read while written", []Event{source, PullStarted{id}, Seal{ref, []PageSeal{seal(0, 64)}}}, 1, true},
		{"source finished and read", []Event{source, PullStarted{id}, Finish{ref, []PageSeal{seal(0, 64), seal(1, 36)}, 100}}, 1, false},
		{"source with two readers", []Event{source, PullStarted{id}, PullStarted{id}}, 2, true},
		{"destination before its pull", []Event{destination}, 0, true},
		{"destination while nothing has come", arrived[:2], 1, true},
		{"destination half arrived", arrived[:3], 1, true},
		{"destination staged", arrived, 1, true},
		{"destination staged and let go", owned[:5], 0, true},
		{"destination in its check", owned[:6], 0, true},
		{"destination owned", owned, 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			enders := []Event{Expire{id}, Revoke{id, errs.Unavailable, "deadline"}, Retired{ref, false, errs.Unavailable, "cancelled"},
				WorkerGone{ref.Attach}, TransferFailed{id, errs.Corrupt, "differs"}}
			for range max(tt.movers, 1) { // one too many, where there is none: a repeat
				enders = append(enders, PullEnded{id, false})
			}
			for order := range permutations(enders) {
				endsOnce(t, tt.before, order, tt.movers, tt.worked)
			}
		})
	}
}

func endsOnce(t *testing.T, before, order []Event, movers int, working bool) {
	tab, err := New(Config{Pages: 4, Generation: 100})
	if err != nil {
		t.Fatal(err)
	}
	history := append([]Event{Attached{Attach: name16[Attach]("w"), Worker: "w", Epoch: 7}}, before...)
	for _, ev := range history {
		if _, err := tab.Step(ev); err != nil {
			t.Fatalf("setup %T: %v", ev, err)
		}
	}
	ended, zeroed := false, 0
	for i, ev := range order {
		effects, err := tab.Step(ev)
		if k := errs.KindOf(err); err != nil && k != errs.Invalid { // Invalid: a transfer that a solo or source has not
			t.Fatalf("%s: step %d: %v", orderText(order), i, err)
		}
		switch ev.(type) {
		case Retired, WorkerGone:
			working = false
		case PullEnded:
			movers = max(movers-1, 0)
		}
		ended = ended || has[Record](effects)
		for _, e := range effects {
			if z, ok := e.(Zero); ok {
				if zeroed++; working || movers > 0 || len(z.Pages) != 2 {
					t.Fatalf("%s: step %d clears %d pages with the worker %v and %d movers", orderText(order), i, len(z.Pages),
						working, movers)
				}
				if _, err := tab.Step(Zeroed{z.Pages}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := tab.selfCheck(); err != nil {
			t.Fatalf("%s: step %d: %v", orderText(order), i, err)
		}
	}
	if s := tab.Snapshot(); !ended || zeroed != 1 || s.States[Free] != 4 || len(s.Leases)+len(s.Tenants)+len(s.Workers) != 0 {
		t.Fatalf("%s: cleared %d times, at the end %+v", orderText(order), zeroed, s)
	}
}

func has[E Effect](effects []Effect) bool {
	for _, e := range effects {
		if _, ok := e.(E); ok {
			return true
		}
	}
	return false
}

func orderText(order []Event) string {
	var names []string
	for _, ev := range order {
		names = append(names, strings.TrimPrefix(fmt.Sprintf("%T", ev), "lease."))
	}
	return strings.Join(names, ", ")
}

// permutations yields every order of evs, in place.
func permutations(evs []Event) func(func([]Event) bool) {
	return func(yield func([]Event) bool) {
		var rec func(k int) bool
		rec = func(k int) bool {
			if k == len(evs) {
				return yield(evs)
			}
			for i := k; i < len(evs); i++ {
				evs[k], evs[i] = evs[i], evs[k]
				if !rec(k + 1) {
					return false
				}
				evs[k], evs[i] = evs[i], evs[k]
			}
			return true
		}
		rec(0)
	}
}
