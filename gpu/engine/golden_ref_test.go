//go:build cgo

package engine_test

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/gpu/layout"
	"leasehold.dev/model"
	"leasehold.dev/model/modelfile"
)

type goldenPrompt struct {
	Name      string
	PromptIDs []int32 `json:"prompt_ids"`
	Ref       struct {
		Top5 []struct {
			ID    int32
			Logit float32
		}
		IDs []int32
	}
}

func readGolden(t testing.TB) []goldenPrompt {
	t.Helper()
	data, err := os.ReadFile("../../model/testdata/smollm2.json")
	if err != nil {
		t.Fatal(err)
	}
	var g struct{ Prompts []goldenPrompt }
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	if len(g.Prompts) != 5 {
		t.Fatalf("golden file has %d prompts, want 5", len(g.Prompts))
	}
	return g.Prompts
}

func loadModel(t testing.TB) *model.Model {
	t.Helper()
	m, err := model.Load(modelfile.Path(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// The reference with f32 KV against an independent float32 pass over the same weights: greedy, 48 tokens. All five
// prompts decode together, which costs a third and changes no bit (TestSameBits).
func TestGoldenRefGivesTheIndependentPassTokens(t *testing.T) {
	prompts := readGolden(t)
	b := newBench(t, loadModel(t), engine.Options{Backend: layout.RefF32}, 32)
	seqs := make([]*seq, len(prompts))
	got := make([][]int32, len(prompts))
	for i, p := range prompts {
		seqs[i] = b.open(uint32(i+1), uint32(len(p.PromptIDs)+48)/64+1)
		st := b.step(engine.Work{Seq: seqs[i].id, Tokens: p.PromptIDs, Want: engine.Last})
		seqs[i].pos = uint32(len(p.PromptIDs))
		for _, top := range p.Ref.Top5 {
			if d := math.Abs(float64(st.Results[0].Logits[0][top.ID] - top.Logit)); d > 0.02 {
				t.Errorf("%s: logit of %d differs by %g, most is 0.02", p.Name, top.ID, d)
			}
		}
		got[i] = append(got[i], argmax(st.Results[0].Logits[0]))
	}
	for len(got[0]) < 48 {
		var work []engine.Work
		for i, s := range seqs {
			work = append(work, engine.Work{Seq: s.id, Pos: s.pos, Tokens: got[i][len(got[i])-1:], Want: engine.Last})
		}
		for i, r := range b.step(work...).Results {
			seqs[i].pos = r.Length
			got[i] = append(got[i], argmax(r.Logits[0]))
		}
	}
	for i, p := range prompts {
		if !slices.Equal(got[i], p.Ref.IDs) {
			t.Errorf("%s: tokens\n %v, want\n %v", p.Name, got[i], p.Ref.IDs)
		}
	}
}
