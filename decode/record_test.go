package decode

import (
	"context"
	"encoding/hex"
	"testing"

	"google.golang.org/protobuf/proto"

	"leasehold.dev/gpu/tinymodel"
	"leasehold.dev/gpu/worker"
	"leasehold.dev/mesh/audit/audittest"
	"leasehold.dev/mesh/audit/event"
	"leasehold.dev/protos/errs"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

func TestVerdictsEndsAndFailuresAreOnRecord(t *testing.T) {
	log := audittest.Open(t, "decode", "d0")
	g := newRig(t, tinymodel.Options{}, 16)
	g.startWorker(func(_ *worker.Config, o *Options) { o.Audit = log.Log })
	p := g.startPrefill(meshv1.Mover_MOVER_LOCAL)

	whole := g.request(70, 5, nil)
	unsplit, err := g.generate(context.Background(), whole, nil)
	if err != nil {
		t.Fatal(err)
	}
	req := g.request(70, 5, by(meshv1.Mover_MOVER_LOCAL))
	split, err := g.generateSplit(req, p, 69)
	if err != nil {
		t.Fatal(err)
	}
	long := g.request(300, 5, nil)
	if _, err := g.generate(context.Background(), long, nil); errs.KindOf(err) != errs.Limit {
		t.Fatalf("over the limit: %v, want limit", err)
	}
	if _, err := g.generate(context.Background(), g.request(9, 1, func(a *meshv1.Admission) { a.Decode = "d1" }), nil); err == nil {
		t.Fatal("another worker's admission is taken")
	}
	g.allFree()

	events := log.Events()
	if got, want := audittest.Kinds(events), "decode.verdict decode.finished decode.verdict decode.finished half.failed"; got != want {
		t.Fatalf("records:\n got %s\nwant %s", got, want)
	}
	for i, r := range []*reply{unsplit, split} {
		if v := events[2*i].(event.DecodeVerdict); v != event.DecodeSaid("acme", r.verdict) || v.Lease != hex.EncodeToString(r.admitted.LeaseHash) || v.Unsplit != (i == 0) {
			t.Errorf("verdict %+v of %v", v, r.verdict)
		}
		want := event.DecodeFinished{Admission: hex.EncodeToString(r.verdict.AdmissionId), Tenant: "acme", Lease: hex.EncodeToString(r.admitted.LeaseHash),
			PromptTokens: 70, CompletionTokens: 5, OutputDigest: hex.EncodeToString(r.finished.OutputDigest),
			LogitDigest: hex.EncodeToString(r.finished.LogitDigest), GuardsOn: true}
		if f := events[2*i+1].(event.DecodeFinished); f != want {
			t.Errorf("finished %+v, want %+v", f, want)
		}
	}
	f := events[4].(event.HalfFailed)
	if f.Admission != id(t, long.Admission) || f.Half != "decode" || f.Error != "limit" || f.Lease != "" || f.Reason == "" {
		t.Errorf("a refusal: %+v", f)
	}
	if err := g.svc.Ready(t.Context()); errs.KindOf(err) != errs.Unavailable {
		t.Errorf("Ready without a log to write = %v, want unavailable", err)
	}
}

func TestFaultRecordsAreOnRecord(t *testing.T) {
	log := audittest.Open(t, "decode", "d0")
	g := newRig(t, tinymodel.Options{}, 16)
	g.startWorker(func(_ *worker.Config, o *Options) { o.Audit = log.Log })
	req := g.request(70, 5, nil)
	j, err := g.svc.admit(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	lease, page := hex.EncodeToString(j.lease.Hash()), j.lease.Pages[0]
	for i := range j.lease.Tags {
		j.lease.Tags[i]++ // what the sequence expects is not what the broker wrote
	}
	err = j.serve(func(*decodev1.GenerateResponse) error { return nil })
	if errs.KindOf(err) != errs.Corrupt {
		t.Fatalf("serve over pages with other tags = %v, want corrupt", err)
	}
	j.end(err)
	j.cancel()
	g.allFree()
	var found []event.Faults
	for _, e := range log.Events() {
		if f, ok := e.(event.Faults); ok {
			found = append(found, f)
		}
	}
	if len(found) != 1 || found[0].Lease != lease || found[0].Tenant != "acme" || len(found[0].Records) == 0 || found[0].Records[0].Page != page || found[0].Records[0].Fault != "write" {
		t.Errorf("faults %+v, want write faults of page %d", found, page)
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
