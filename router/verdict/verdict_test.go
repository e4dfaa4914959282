package verdict_test

import (
	"crypto/sha256"
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"leasehold.dev/protos/errs"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/proof"
	"leasehold.dev/router/verdict"
)

func hash(s string) []byte { h := sha256.Sum256([]byte(s)); return h[:] }

// agree is the views of a split request on which all agree.
func agree(n uint32) verdict.Views {
	a := &meshv1.Admission{Id: hash("id")[:16], Tenant: "acme", ModelRevision: hash("weights"), PromptTokens: n, MaxNewTokens: 10,
		PromptDigest: hash("prompt"), Mover: meshv1.Mover_MOVER_GRPC}
	pages := proof.Pages(n, 0)
	return verdict.Views{
		Admission: a, Layout: hash("layout"),
		Admitted: &decodev1.Admitted{LeaseHash: hash("dst"), Pages: (n + 9 + 63) / 64, ExpectedPages: pages},
		Prefill: &meshv1.PrefillVerdict{AdmissionId: a.Id, LeaseHash: hash("src"), Instance: hash("instance")[:16], Epoch: 3,
			ModelRevision: a.ModelRevision, LayoutHash: hash("layout"), PromptDigest: a.PromptDigest, Rows: n - 1, Pages: pages, Root: hash("root")},
		Decode: &meshv1.DecodeVerdict{AdmissionId: a.Id, LeaseHash: hash("dst"), SourceLeaseHash: hash("src"), SourceInstance: hash("instance")[:16],
			SourceEpoch: 3, ModelRevision: a.ModelRevision, LayoutHash: hash("layout"), PromptDigest: a.PromptDigest, Rows: n - 1,
			Pages: pages, ExpectedPages: pages, Root: hash("root"), BytesMoved: uint64(pages) * 4096, Mover: meshv1.Mover_MOVER_GRPC,
			Instance: hash("d's broker")[:16], Epoch: 5},
	}
}

// alone is the views of an unsplit request.
func alone(n uint32) verdict.Views {
	v := agree(n)
	v.Admission.Mover, v.Prefill, v.Admitted.ExpectedPages = meshv1.Mover_MOVER_NONE, nil, 0
	v.Decode = &meshv1.DecodeVerdict{AdmissionId: v.Admission.Id, LeaseHash: hash("dst"), ModelRevision: v.Admission.ModelRevision,
		LayoutHash: hash("layout"), PromptDigest: v.Admission.PromptDigest, Mover: meshv1.Mover_MOVER_NONE, Unsplit: true, Instance: hash("d's broker")[:16], Epoch: 5}
	return v
}

func TestViewsThatAgree(t *testing.T) {
	for _, n := range []uint32{2, 63, 64, 65, 66, 128, 129, 2000} {
		if err := verdict.Compare(agree(n)); err != nil {
			t.Errorf("n %d: %v", n, err)
		}
	}
	local := agree(200)
	local.Admission.Mover, local.Decode.Mover, local.Decode.BytesMoved = meshv1.Mover_MOVER_LOCAL, meshv1.Mover_MOVER_LOCAL, 0
	if err := verdict.Compare(local); err != nil {
		t.Errorf("handed over inside of one broker: %v", err)
	}
	for _, n := range []uint32{1, 64, 2000} {
		if err := verdict.Compare(alone(n)); err != nil {
			t.Errorf("unsplit, n %d: %v", n, err)
		}
	}
}

func TestAHeldPrefixIsCounted(t *testing.T) {
	v := agree(200) // D holds the first 100 tokens: 99 rows in the pages 1, 2 and 3
	v.Prefill.FromToken, v.Decode.FromToken = 100, 100
	v.Prefill.Rows, v.Decode.Rows = 99, 99
	v.Prefill.Pages, v.Decode.Pages, v.Decode.ExpectedPages, v.Admitted.ExpectedPages = 3, 3, 3, 3
	if err := verdict.Compare(v); err != nil {
		t.Error(err)
	}
	v.Decode.FromToken = 99
	if err := verdict.Compare(v); err == nil {
		t.Error("the halves start at different tokens, and nobody says so")
	}
}

func TestEachFieldThatDiffers(t *testing.T) {
	flip := func(b []byte) []byte { c := append([]byte(nil), b...); c[3] ^= 4; return c }
	for _, c := range []struct {
		field string
		twist func(*verdict.Views)
	}{
		{"decode.admission_id", func(v *verdict.Views) { v.Decode.AdmissionId = flip(v.Decode.AdmissionId) }},
		{"decode.prompt_digest", func(v *verdict.Views) { v.Decode.PromptDigest = flip(v.Decode.PromptDigest) }},
		{"decode.model_revision", func(v *verdict.Views) { v.Decode.ModelRevision = hash("other") }},
		{"decode.layout_hash", func(v *verdict.Views) { v.Decode.LayoutHash = hash("other") }},
		{"decode.layout_hash", func(v *verdict.Views) { v.Layout = nil }},
		{"decode.lease_hash", func(v *verdict.Views) { v.Decode.LeaseHash = hash("other") }},
		{"decode.lease_hash", func(v *verdict.Views) { v.Admitted.LeaseHash, v.Decode.LeaseHash = nil, nil }},
		{"decode.instance", func(v *verdict.Views) { v.Decode.Instance = nil }},
		{"decode.instance", func(v *verdict.Views) { v.Decode.Instance = make([]byte, 16) }},
		{"decode.epoch", func(v *verdict.Views) { v.Decode.Epoch = 0 }},
		{"admitted.pages", func(v *verdict.Views) { v.Admitted.Pages-- }},
		{"admitted.pages", func(v *verdict.Views) { v.Admitted.Pages++ }},
		{"prefill", func(v *verdict.Views) { v.Prefill = nil }},
		{"prefill.admission_id", func(v *verdict.Views) { v.Prefill.AdmissionId = nil }},
		{"prefill.prompt_digest", func(v *verdict.Views) { v.Prefill.PromptDigest = flip(v.Prefill.PromptDigest) }},
		{"prefill.model_revision", func(v *verdict.Views) { v.Prefill.ModelRevision = hash("other") }},
		{"prefill.layout_hash", func(v *verdict.Views) { v.Prefill.LayoutHash = hash("other") }},
		{"decode.source_lease_hash", func(v *verdict.Views) { v.Prefill.LeaseHash = hash("another lease") }},
		{"decode.source_lease_hash", func(v *verdict.Views) { v.Decode.SourceLeaseHash = nil }},
		{"decode.source_lease_hash", func(v *verdict.Views) { v.Decode.SourceLeaseHash, v.Prefill.LeaseHash = nil, nil }},
		{"decode.source_instance", func(v *verdict.Views) { v.Decode.SourceInstance = hash("before the restart")[:16] }},
		{"decode.source_epoch", func(v *verdict.Views) { v.Prefill.Epoch = 2 }},
		{"decode.source_epoch", func(v *verdict.Views) { v.Decode.SourceEpoch = 4 }},
		{"decode.source_epoch", func(v *verdict.Views) { v.Decode.SourceEpoch, v.Prefill.Epoch = 0, 0 }},
		{"decode.root", func(v *verdict.Views) { v.Decode.Root = flip(v.Decode.Root) }},
		{"decode.root", func(v *verdict.Views) { v.Prefill.Root = flip(v.Prefill.Root) }},
		{"decode.root", func(v *verdict.Views) { v.Decode.Root, v.Prefill.Root = nil, nil }},
		{"decode.root", func(v *verdict.Views) { v.Decode.Root, v.Prefill.Root = make([]byte, 32), make([]byte, 32) }},
		{"decode.root", func(v *verdict.Views) { v.Decode.Root, v.Prefill.Root = hash("root")[:16], hash("root")[:16] }},
		{"decode.unsplit", func(v *verdict.Views) { v.Decode.Unsplit = true }},
		{"decode.mover", func(v *verdict.Views) { v.Decode.Mover = meshv1.Mover_MOVER_LOCAL }},
		{"decode.from_token", func(v *verdict.Views) { v.Decode.FromToken = 199 }},
		{"prefill.from_token", func(v *verdict.Views) { v.Prefill.FromToken = 64 }},
		{"prefill.rows", func(v *verdict.Views) { v.Prefill.Rows-- }},
		{"prefill.rows", func(v *verdict.Views) { v.Prefill.Rows++ }},
		{"prefill.rows", func(v *verdict.Views) { v.Prefill.Rows, v.Decode.Rows = 1, 1 }}, // the stub: both agree on a lie
		{"decode.rows", func(v *verdict.Views) { v.Decode.Rows-- }},
		{"prefill.pages", func(v *verdict.Views) { v.Prefill.Pages-- }},
		{"prefill.pages", func(v *verdict.Views) { v.Prefill.Pages++ }},
		{"decode.pages", func(v *verdict.Views) { v.Decode.Pages = 1 }},
		{"decode.expected_pages", func(v *verdict.Views) { v.Decode.ExpectedPages-- }},
		{"admitted.expected_pages", func(v *verdict.Views) { v.Admitted.ExpectedPages++ }},
		{"decode.bytes_moved", func(v *verdict.Views) { v.Decode.BytesMoved = 0 }},
		{"decode.bytes_moved", func(v *verdict.Views) { // one broker, and yet something moved
			v.Admission.Mover, v.Decode.Mover = meshv1.Mover_MOVER_LOCAL, meshv1.Mover_MOVER_LOCAL
		}},
		{"presence", func(v *verdict.Views) { v.Decode = nil }},
		{"presence", func(v *verdict.Views) { v.Admitted = nil }},
	} {
		v := agree(200)
		c.twist(&v)
		check(t, c.field, verdict.Compare(v))
	}
	for _, c := range []struct {
		field string
		twist func(*verdict.Views)
	}{
		{"prefill", func(v *verdict.Views) { v.Prefill = agree(200).Prefill }},
		{"decode.unsplit", func(v *verdict.Views) { v.Decode.Unsplit = false }},
		{"admitted.expected_pages", func(v *verdict.Views) { v.Admitted.ExpectedPages = 4 }},
		{"decode.expected_pages", func(v *verdict.Views) { v.Decode.ExpectedPages = 1 }},
		{"decode.rows", func(v *verdict.Views) { v.Decode.Rows = 199 }},
		{"decode.pages", func(v *verdict.Views) { v.Decode.Pages = 4 }},
		{"decode.bytes_moved", func(v *verdict.Views) { v.Decode.BytesMoved = 1 }},
		{"decode.root", func(v *verdict.Views) { v.Decode.Root = hash("root") }},
		{"decode.source_lease_hash", func(v *verdict.Views) { v.Decode.SourceLeaseHash = hash("src") }},
		{"decode.source_instance", func(v *verdict.Views) { v.Decode.SourceInstance = hash("instance")[:16] }},
		{"decode.source_epoch", func(v *verdict.Views) { v.Decode.SourceEpoch = 3 }},
		{"decode.from_token", func(v *verdict.Views) { v.Decode.FromToken = 64 }},
		{"decode.mover", func(v *verdict.Views) { v.Decode.Mover = meshv1.Mover_MOVER_GRPC }},
	} {
		v := alone(200)
		c.twist(&v)
		check(t, c.field, verdict.Compare(v))
	}
}

func check(t *testing.T, field string, err error) {
	t.Helper()
	var d *verdict.Disagreement
	if !errors.As(err, &d) || d.Field != field || errs.KindOf(err) != errs.Corrupt {
		t.Errorf("%v (%v), want Corrupt by %s", err, errs.KindOf(err), field)
	}
}

// Whatever one number becomes, a difference is found.
func TestAnyOtherNumberIsADifference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint32Range(2, 5000).Draw(t, "n")
		v := agree(n)
		targets := []*uint32{&v.Prefill.Rows, &v.Prefill.Pages, &v.Prefill.FromToken, &v.Decode.Rows, &v.Decode.Pages, &v.Decode.ExpectedPages,
			&v.Admitted.ExpectedPages, &v.Admitted.Pages}
		at := targets[rapid.IntRange(0, len(targets)-1).Draw(t, "field")]
		other := rapid.Uint32().Draw(t, "value")
		before := proto.Clone(v.Decode)
		same := *at == other
		*at = other
		if err := verdict.Compare(v); (err == nil) != same {
			t.Fatalf("n %d: %v; decode %v", n, err, before)
		}
	})
}
