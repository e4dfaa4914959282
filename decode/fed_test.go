package decode

import (
	"context"
	"strings"
	"testing"

	"leasehold.dev/gpu/tinymodel"
	"leasehold.dev/protos/errs"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/proof"
)

// The ids change between the check of the ticket and the engine: what is counted at the engine must notice.
func TestNoTokenLeavesWhenOtherIdsWereFed(t *testing.T) {
	g := newRig(t, tinymodel.Options{}, 16)
	g.startWorker(nil)
	p := g.startPrefill(meshv1.Mover_MOVER_LOCAL)
	for _, tt := range []struct {
		name  string
		n, at int
		mover meshv1.Mover
	}{
		{"the only id", 1, 0, meshv1.Mover_MOVER_NONE},
		{"the first id of many", 200, 0, meshv1.Mover_MOVER_NONE},
		{"the last id of many", 200, 199, meshv1.Mover_MOVER_NONE},
		{"the one id that is left to decode", 100, 99, meshv1.Mover_MOVER_LOCAL},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req := g.request(tt.n, 20, by(tt.mover))
			r, err := g.generate(context.Background(), req, func(m *decodev1.GenerateResponse) {
				switch {
				case m.GetAdmitted() != nil && tt.mover != meshv1.Mover_MOVER_NONE:
					if err := p.run(context.Background(), req, uint32(tt.n-1)); err != nil {
						t.Errorf("prefill: %v", err)
					}
				case m.GetVerdict() != nil:
					req.TokenIds[tt.at] += 7
				}
			})
			if errs.KindOf(err) != errs.Corrupt || err == nil || !strings.Contains(err.Error(), "that were fed") {
				t.Errorf("Generate = %v, want corrupt", err)
			}
			if len(r.ids) > 0 || r.finished != nil {
				t.Errorf("%d tokens left, finished %v", len(r.ids), r.finished)
			}
			g.allFree()
		})
	}
}

func TestWhatWasFedIsHeldAgainstTheAdmission(t *testing.T) {
	ids := prompt(70)
	a := &meshv1.Admission{Nonce: proof.NewID(), Tenant: "acme", ModelRevision: make([]byte, 32), PromptTokens: 70}
	a.PromptDigest = proof.PromptDigest(a.Nonce, a.Tenant, a.ModelRevision, ids)
	for _, tt := range []struct {
		name     string
		verified uint32
		fed      []int32
		rows     uint32
		ok       bool
	}{
		{"all of it", 0, ids, 70, true},
		{"what prefill left", 69, ids[69:], 70, true},
		{"nothing", 0, nil, 0, false},
		{"one id less", 0, ids[:69], 69, false},
		{"one id less than the rows", 0, ids[:69], 70, false},
		{"one row more", 0, ids, 71, false},
		{"an id of before again", 69, ids[68:], 70, false},
		{"another id", 69, ids[68:69], 70, false},
		{"two ids swapped", 68, []int32{ids[69], ids[68]}, 70, false},
	} {
		j := &job{a: a, ids: ids, verified: tt.verified, answer: &answer{fed: tt.fed, prompt: tt.rows}}
		if err := j.checkFed(); (err == nil) != tt.ok || err != nil && errs.KindOf(err) != errs.Corrupt {
			t.Errorf("%s: %v, want ok %v", tt.name, err, tt.ok)
		}
	}
}
