package prefill

import (
	"context"
	"encoding/hex"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"leasehold.dev/gpu/tinymodel"
	"leasehold.dev/mesh/audit/audittest"
	"leasehold.dev/mesh/audit/event"
	"leasehold.dev/protos/errs"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

func TestVerdictsAndFailuresAreOnRecord(t *testing.T) {
	log := audittest.Open(t, "prefill", "p0")
	g := newRig(t, tinymodel.Options{}, 16)
	g.audit = log.Log
	g.startWorker(nil)
	d := g.decode()

	req := g.request(100, 10, nil)
	dst := g.reserve(d, req, 10)
	resp, err := g.svc.Run(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	retire(t, dst, true)

	late := g.request(100, 10, nil) // nobody has parked a Pull for it
	if _, err := g.svc.Run(context.Background(), late); errs.KindOf(err) != errs.Unavailable {
		t.Fatalf("Run without a Pull = %v, want unavailable", err)
	}
	if _, err := g.svc.Run(context.Background(), g.request(9, 1, func(a *meshv1.Admission) { a.Prefill = "p1" })); err == nil {
		t.Fatal("another worker's admission is taken")
	}

	broken := g.request(100, 10, nil) // the tag of a page changes under the kernels
	dst = g.reserve(d, broken, 10)
	link, err := g.host.Link()
	if err != nil {
		t.Fatal(err)
	}
	j, err := g.svc.reserve(context.Background(), link, broken)
	link.Release()
	if err != nil {
		t.Fatal(err)
	}
	lease := hex.EncodeToString(j.lease.Hash())
	page := j.lease.Pages[0]
	for i := range j.lease.Tags {
		j.lease.Tags[i]++ // what the sequence expects is not what the broker wrote
	}
	if _, err := j.run(); errs.KindOf(err) != errs.Corrupt {
		t.Fatalf("run over pages with other tags = %v, want corrupt", err)
	}
	retire(t, dst, false)
	g.allFree()

	if err := g.svc.Ready(t.Context()); err != nil {
		t.Errorf("Ready with a log = %v", err)
	}
	events := log.Events()
	want := "prefill.verdict half.failed half.failed worker.faults"
	if got := audittest.Kinds(events); got != want {
		t.Fatalf("records:\n got %s\nwant %s", got, want)
	}
	if v := events[0].(event.PrefillVerdict); v != event.PrefillSaid("acme", resp.Verdict) || v.Rows != 99 || v.Pages != 2 || v.Root == "" {
		t.Errorf("verdict %+v", v)
	}
	if f := events[1].(event.HalfFailed); f.Admission != id(t, late.Admission) || f.Half != "prefill" || f.Error != "unavailable" || f.Lease != "" || f.Tenant != "acme" {
		t.Errorf("a refusal: %+v", f)
	}
	if f := events[2].(event.HalfFailed); f.Admission != id(t, broken.Admission) || f.Error != "corrupt" || f.Lease != lease || !strings.Contains(f.Reason, "fault records") {
		t.Errorf("a failure: %+v", f)
	}
	f := events[3].(event.Faults)
	if f.Lease != lease || f.Admission != id(t, broken.Admission) || len(f.Records) == 0 || f.Records[0].Page != page || f.Records[0].Want == f.Records[0].Got {
		t.Errorf("faults: %+v, want some of page %d", f, page)
	}

	err = g.svc.Ready(t.Context()) // the log is closed
	if errs.KindOf(err) != errs.Unavailable {
		t.Errorf("Ready without a log to write = %v, want unavailable", err)
	}
	if st := g.svc.status(); st.Ready || st.Reason != err.Error() {
		t.Errorf("status %v, %q", st.Ready, st.Reason)
	}
	if _, err := g.svc.Run(context.Background(), g.request(100, 10, nil)); errs.KindOf(err) != errs.Unavailable {
		t.Errorf("Run without a log to write = %v, want unavailable", err)
	}
}

func id(t *testing.T, s *meshv1.SignedAdmission) string {
	t.Helper()
	var a meshv1.Admission
	if err := proto.Unmarshal(s.GetAdmission(), &a); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(a.Id)
}
