package flow_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"leasehold.dev/mesh/boundary"
	"leasehold.dev/mesh/telemetry"
	"leasehold.dev/protos/errs"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/router/meter"
)

// observed gives the world real metrics and a log to read. metrics is what /metrics shows.
func (w *world) observed() (metrics func() string, log *bytes.Buffer) {
	w.t.Helper()
	tel, err := telemetry.New(w.t.Context(), "router", "r", "")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = tel.Close(context.Background()) })
	if w.Boundary, err = boundary.New(tel.Meter(), time.Now); err != nil {
		w.t.Fatal(err)
	}
	if w.Meter, err = meter.New(tel.Meter(), nil); err != nil {
		w.t.Fatal(err)
	}
	log = &bytes.Buffer{}
	w.Log = slog.New(slog.NewTextHandler(log, nil))
	return func() string {
		rec := httptest.NewRecorder()
		tel.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
		return rec.Body.String()
	}, log
}

func TestWhatTwoViewsDifferOnIsCountedAndLogged(t *testing.T) {
	refuse := func(k errs.Kind) func(context.Context, *meshv1.Admission) error {
		return func(context.Context, *meshv1.Admission) error { return errs.New(k, "no: 7 of 5") }
	}
	for _, c := range []struct {
		why          string
		p, d         func(context.Context, *meshv1.Admission) error
		twist        func(*meshv1.PrefillVerdict)
		field, count string // "": none
	}{
		{why: "P is over its limit with what was admitted", p: refuse(errs.Limit), field: "worker_limit", count: `{detector="refusal",property="P5"}`},
		{why: "D is over its limit with what was admitted", d: refuse(errs.Limit), field: "worker_limit", count: `{detector="refusal",property="P5"}`},
		{why: "D finds the ticket malformed", d: refuse(errs.Invalid), field: "worker_refusal", count: `{detector="refusal",property="P4"}`},
		{why: "P's check fails", p: refuse(errs.Corrupt), field: "worker_check", count: `{detector="refusal",property="P4"}`},
		{why: "P counted one row, as for a stub", twist: func(v *meshv1.PrefillVerdict) { v.Rows = 1 }, field: "prefill.rows", count: `{detector="verdict",property="P4"}`},
		{why: "P has no room now", p: refuse(errs.Exhausted)},
		{why: "D is going away", d: refuse(errs.Unavailable)},
	} {
		t.Run(c.why, func(t *testing.T) {
			w := newWorld(t)
			metrics, log := w.observed()
			w.NewPrefill(w.Status("p", "bp")).Do = c.p
			d := w.NewDecode(w.Status("d", "bd"))
			d.Before = c.d
			w.settle(1, 1)
			if c.twist != nil {
				w.Leave("prefill", "p")
				w.settle(0, 1)
				w.NewPrefill(w.Status("p2", "bp")).Twist = c.twist
				w.settle(1, 1)
			}
			if _, _, err := w.answer(t.Context(), w.job(100, 4)); err == nil {
				t.Fatal("the request was answered")
			}
			got := metrics()
			if _, ok := w.Boundary.Last(boundary.P4, boundary.Verdict, "p/d"); ok {
				t.Error("a failed request counts as a look at verdicts that agree")
			}
			if c.field == "" {
				if strings.Contains(got, meter.Disagreements) || strings.Contains(got, boundary.Incidents) || strings.Contains(log.String(), "incident") {
					t.Errorf("a loss is no incident:\n%s", log)
				}
				return
			}
			for _, want := range []string{meter.Disagreements + `_total{field="` + c.field + `"} 1`, boundary.Incidents + "_total" + c.count + " 1"} {
				if !strings.Contains(got, want) {
					t.Errorf("/metrics lacks %s", want)
				}
			}
			if !strings.Contains(log.String(), "level=ERROR") || !strings.Contains(log.String(), "field="+c.field) {
				t.Errorf("the log lacks the incident:\n%s", log)
			}
		})
	}
}

func TestPairsAreExpectedAndForgotten(t *testing.T) {
	w := newWorld(t)
	w.observed()
	w.NewPrefill(w.Status("p", "bp"))
	w.NewDecode(w.Status("d", "bd"))
	w.settle(1, 1)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { w.Expect(ctx) })
	defer wg.Wait()
	defer cancel()
	known := func(pair string) bool { _, ok := w.Boundary.Last(boundary.P4, boundary.Verdict, pair); return ok }
	eventually(t, "the pair's clock runs before its first request", func() bool { return known("p/d") })
	if known("/d") {
		t.Error("decode alone is expected to be used")
	}
	before, _ := w.Boundary.Last(boundary.P5, boundary.Refusal, "p/d")
	if _, _, err := w.answer(t.Context(), w.job(100, 4)); err != nil {
		t.Fatal(err)
	}
	if after, _ := w.Boundary.Last(boundary.P5, boundary.Refusal, "p/d"); !after.After(before) {
		t.Errorf("last look at %v after a request, was %v", after, before)
	}
	w.Leave("prefill", "p")
	eventually(t, "the clock stops when the pair is gone", func() bool { return !known("p/d") })
}

// The guard is content: rows and digests are as they should be. Only the time is not.
func TestAPromptThatWasNotComputedIsFlagged(t *testing.T) {
	for _, c := range []struct {
		span uint64
		n    int
		fast bool
		look bool
	}{{9900, 100, false, true}, {2971, 100, false, true}, {2969, 100, true, true}, {0, 100, true, true}, {0, 50, false, false}} {
		w := newWorld(t)
		metrics, log := w.observed()
		s := w.Status("p", "bp")
		s.WarmUp = &meshv1.WarmUp{AUs: 100, MeasuredTokens: 256} // 99 rows: 9.9 ms
		w.NewPrefill(s).Twist = func(v *meshv1.PrefillVerdict) { v.SpanUs = c.span }
		w.NewDecode(w.Status("d", "bd"))
		w.settle(1, 1)
		if _, _, err := w.answer(t.Context(), w.job(c.n, 4)); err != nil {
			t.Fatal(err)
		}
		flagged := strings.Contains(metrics(), boundary.Incidents+`_total{detector="too_fast",property="P1"} 1`)
		if flagged != c.fast || strings.Contains(log.String(), "faster than it can be computed") != c.fast {
			t.Errorf("%d tokens in %d us: flagged %v, want %v\n%s", c.n, c.span, flagged, c.fast, log)
		}
		if _, ok := w.Boundary.Last(boundary.P1, boundary.TooFast, "p/d"); ok != c.look {
			t.Errorf("%d tokens in %d us: a look %v, want %v", c.n, c.span, ok, c.look)
		}
	}
}
