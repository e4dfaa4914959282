package flow_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"leasehold.dev/mesh/boundary"
	"leasehold.dev/mesh/telemetry"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/router/flow"
	"leasehold.dev/router/reconcile"
	"leasehold.dev/router/scripted"
	"leasehold.dev/router/witness"
)

// watched is a world whose router follows the records of two brokers, bp and bd.
type watched struct {
	*world
	metrics func() string
	bp, bd  *scripted.Broker
	p       *scripted.Prefill
	d       *scripted.Decode
}

func newWatched(t *testing.T, patience time.Duration) *watched {
	w := &watched{world: newWorld(t)}
	w.metrics, _ = w.observed()
	w.bp, w.bd = w.NewBroker("bp"), w.NewBroker("bd")
	tel, err := telemetry.New(t.Context(), "router", "w", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tel.Close(context.Background()) })
	if w.Witness, err = witness.New(w.Brokers, reconcile.Config{Patience: patience, Open: 100}, tel.Meter(), w.Boundary, w.Log); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { w.Witness.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	w.p, w.d = w.NewPrefill(w.Status("p", "bp")), w.NewDecode(w.Status("d", "bd"))
	w.settle(1, 1)
	return w
}

// incidents are the boundary's lines of the reconciler.
func (w *watched) incidents(p boundary.Property) bool {
	return strings.Contains(w.metrics(), boundary.Incidents+`_total{detector="reconciler",property="`+string(p)+`"}`)
}

func TestRecordsThatAgreeAreALook(t *testing.T) {
	w := newWatched(t, time.Minute)
	if _, _, err := w.answer(t.Context(), w.job(100, 4)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the admission is reconciled", func() bool { _, ok := w.Boundary.Last(boundary.P4, boundary.Reconciler, "p/d"); return ok })
	if _, _, err := w.answer(t.Context(), w.job(1, 4)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the unsplit one too", func() bool { _, ok := w.Boundary.Last(boundary.P3, boundary.Reconciler, "/d"); return ok })
	if w.incidents(boundary.P3) || w.incidents(boundary.P4) {
		t.Errorf("findings about views that agree:\n%s", w.metrics())
	}
}

// The guard is off: a lying half gets its answer out. The detector finds it, by another channel.
func TestALyingHalfIsFoundWithTheComparisonOff(t *testing.T) {
	for _, c := range []struct {
		why   string
		twist func(*watched)
		want  boundary.Property
		open  bool // the guard, left on, lets it pass too: workers do not see it
	}{
		{why: "P's verdict is of one row, as for a stub", want: boundary.P4, twist: func(w *watched) {
			w.p.Twist = func(v *meshv1.PrefillVerdict) { v.Rows, v.Pages = 1, 1 }
		}},
		{why: "D's verdict names another lease", want: boundary.P4, twist: func(w *watched) {
			w.d.Twist = func(v *meshv1.DecodeVerdict) { v.SourceLeaseHash = scripted.Hash("x") }
		}},
		{why: "P's broker refused, and D says success", want: boundary.P3, open: true, twist: func(w *watched) {
			w.bp.Twist = func(r *brokerv1.LeaseRecord) *brokerv1.LeaseRecord { r.Code = 11; return r }
		}},
		{why: "P's broker says nothing", want: boundary.P4, open: true, twist: func(w *watched) {
			w.bp.Twist = func(*brokerv1.LeaseRecord) *brokerv1.LeaseRecord { return nil }
		}},
		{why: "both workers lie alike, and only P's broker knows better", want: boundary.P4, open: true, twist: func(w *watched) {
			w.bp.Twist = func(r *brokerv1.LeaseRecord) *brokerv1.LeaseRecord { r.Rows = 1; return r }
		}},
	} {
		t.Run(c.why, func(t *testing.T) {
			guarded := newWatched(t, time.Millisecond)
			c.twist(guarded)
			if _, _, err := guarded.answer(t.Context(), guarded.job(100, 4)); (err == nil) != c.open || err != nil && errs.KindOf(err) != errs.Corrupt {
				t.Fatalf("with the guard on: %v, want an answer: %v", err, c.open)
			}
			flow.Uncompared(t)
			w := newWatched(t, time.Second)
			c.twist(w)
			if _, _, err := w.answer(t.Context(), w.job(100, 4)); err != nil {
				t.Fatalf("with the guard off the lie should come through: %v", err)
			}
			eventually(t, "the reconciler finds it", func() bool { return w.incidents(c.want) })
			if _, ok := w.Boundary.Last(boundary.P4, boundary.Reconciler, "p/d"); ok {
				t.Error("it counts as a look at views that agree")
			}
		})
	}
}

func TestABrokerThatComesBackIsFollowedOn(t *testing.T) {
	w := newWatched(t, time.Minute)
	if _, _, err := w.answer(t.Context(), w.job(100, 4)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first is reconciled", func() bool { _, ok := w.Boundary.Last(boundary.P4, boundary.Reconciler, "p/d"); return ok })
	first := time.Now()
	w.bd.Stop()
	w.Leave("kvbroker", "bd")
	w.NewBroker("bd") // another process: its records count from 1
	if _, _, err := w.answer(t.Context(), w.job(100, 4)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "requests are reconciled again", func() bool {
		at, ok := w.Boundary.Last(boundary.P4, boundary.Reconciler, "p/d")
		return ok && at.After(first)
	})
}
