package flow_test

import (
	"context"
	"testing"

	"leasehold.dev/mesh/audit/audittest"
	"leasehold.dev/mesh/audit/event"
	"leasehold.dev/protos/errs"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

func TestAdmissionsAreOnRecord(t *testing.T) {
	log := audittest.Open(t, "router", "r1")
	w := newWorld(t)
	w.Audit = log.Log
	w.NewPrefill(w.Status("p", "b1"))
	w.NewDecode(w.Status("d", "b2"))
	w.settle(1, 1)
	if _, _, err := w.answer(t.Context(), w.job(200, 8)); err != nil {
		t.Fatal(err)
	}
	events := log.Events()
	if got := audittest.Kinds(events); got != "admission" {
		t.Fatalf("records %s, want one admission", got)
	}
	a, c := events[0].(event.Admission), w.records.Last(1)[0].Choices[0]
	want := event.Admission{Request: "r", Admission: c.AdmissionID, Tenant: "acme", Attempt: 1, Route: "split:grpc", Mover: "grpc", Prefill: "p",
		PrefillBroker: "b1", Decode: "d", DecodeBroker: "b2", PromptTokens: 200, MaxNewTokens: 8, PromptDigest: a.PromptDigest}
	if a != want || len(a.PromptDigest) != 64 {
		t.Errorf("admission %+v, want %+v", a, want)
	}
}

// TestRetriesAndDisagreementsAreOnRecord: rows say how the first pair fails, and which records follow its admission.
func TestRetriesAndDisagreementsAreOnRecord(t *testing.T) {
	for _, c := range []struct {
		what, records, result, field string
		pairs                        int
		fail                         func(context.Context, *meshv1.Admission) error
		twist                        func(*meshv1.PrefillVerdict)
	}{
		{what: "lost, with another pair", records: "admission retry admission", result: "taken", pairs: 2, fail: once(errs.New(errs.Unavailable, "gone"))},
		{what: "lost, and the only pair", records: "admission retry", result: "no_pair", pairs: 1, fail: once(errs.New(errs.Unavailable, "gone"))},
		{what: "over P's own limit", records: "admission disagreement", field: "worker_limit", pairs: 2, fail: once(errs.New(errs.Limit, "200 > 100"))},
		{what: "a check at P", records: "admission disagreement", field: "worker_check", pairs: 2, fail: once(errs.New(errs.Corrupt, "tag"))},
		{what: "a refusal at P", records: "admission disagreement", field: "worker_refusal", pairs: 2, fail: once(errs.New(errs.Denied, "no"))},
		{what: "a full pool at P", records: "admission", pairs: 2, fail: once(errs.New(errs.Exhausted, "full"))},
		{what: "a row too few", records: "admission disagreement", field: "prefill.rows", pairs: 2, twist: func(v *meshv1.PrefillVerdict) { v.Rows-- }},
	} {
		log := audittest.Open(t, "router", "r1")
		w := newWorld(t)
		w.Audit = log.Log
		for i := range c.pairs {
			p := w.NewPrefill(w.Status([]string{"p1", "p2"}[i], "b1"))
			p.Do, p.Twist = c.fail, c.twist
		}
		w.NewDecode(w.Status("d", "b2"))
		w.settle(c.pairs, 1)
		_, _, _ = w.answer(t.Context(), w.job(200, 8)) // the records say how it went
		events := log.Events()
		if got := audittest.Kinds(events); got != c.records {
			t.Errorf("%s: records %q, want %q", c.what, got, c.records)
			continue
		}
		first := events[0].(event.Admission).Admission
		for _, e := range events[1:] {
			switch e := e.(type) {
			case event.Retry:
				if e.Request != "r" || e.Admission != first || e.Result != c.result || e.Reason == "" {
					t.Errorf("%s: %+v", c.what, e)
				}
			case event.Disagreement:
				if e.Request != "r" || e.Admission != first || e.Field != c.field || e.Error == "" || e.Reason == "" {
					t.Errorf("%s: %+v", c.what, e)
				}
			case event.Admission:
				if e.Attempt != 2 || e.Admission == first || e.Request != "r" {
					t.Errorf("%s: %+v", c.what, e)
				}
			}
		}
	}
}

// once fails the first call of all workers that share it.
func once(err error) func(context.Context, *meshv1.Admission) error {
	left := make(chan error, 1)
	left <- err
	return func(context.Context, *meshv1.Admission) error {
		select {
		case err := <-left:
			return err
		default:
			return nil
		}
	}
}
