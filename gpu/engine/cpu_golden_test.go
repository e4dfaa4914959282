//go:build cgo

package engine_test

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/gpu/layout"
)

// peerPrompt is a prompt and what llama.cpp made of it with f16 KV: greedy, 48 tokens.
type peerPrompt struct {
	Name      string
	PromptIDs []int32 `json:"prompt_ids"`
	Default   struct {
		Top5 []struct {
			ID    int32
			Logit float64
		}
		IDs    []int32
		Margin []float64 `json:"margin_top1_top2"`
	}
}

func readPeer(t testing.TB) []peerPrompt {
	t.Helper()
	data, err := os.ReadFile("../../model/testdata/smollm2.json")
	if err != nil {
		t.Fatal(err)
	}
	var g struct{ Prompts []peerPrompt }
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	return g.Prompts
}

// The peer rounds activations and KV otherwise, so its logits differ by tenths; where it was sure, we say the same.
// Teacher-forced: every token is judged after the peer's own text.
func TestCPUAgreesWithThePeerWhereItIsSure(t *testing.T) {
	const sure, mostRMS, most = 1.0, 0.4, 1.2
	m, prompts := loadModel(t), readPeer(t)
	for _, simd := range engine.SIMDs() {
		b := newBench(t, m, engine.Options{Backend: layout.CPU, SIMD: simd, Threads: 2}, 32)
		judged := 0
		for i, p := range prompts {
			s := b.open(uint32(i+1), uint32(len(p.PromptIDs)+48)/64+1)
			tokens := p.PromptIDs
			for j, want := range p.Default.IDs {
				st := b.step(engine.Work{Seq: s.id, Pos: s.pos, Tokens: tokens, Want: engine.Last})
				logits := st.Results[0].Logits[0]
				if got := argmax(logits); p.Default.Margin[j] > sure {
					judged++
					if got != want {
						t.Errorf("%s, %s, token %d: %d, want %d (margin %g)", simd, p.Name, j, got, want, p.Default.Margin[j])
					}
				}
				if j == 0 {
					var sum, worst float64
					for _, top := range p.Default.Top5 {
						d := math.Abs(float64(logits[top.ID]) - top.Logit)
						sum, worst = sum+d*d, max(worst, d)
					}
					if rms := math.Sqrt(sum / float64(len(p.Default.Top5))); rms > mostRMS || worst > most {
						t.Errorf("%s, %s: top logits differ by %.2f rms, %.2f at most; allowed %g, %g", simd, p.Name, rms, worst, mostRMS, most)
					}
				}
				s.pos = st.Results[0].Length
				tokens = []int32{want}
			}
		}
		if judged < 100 {
			t.Errorf("%s: only %d tokens had a margin over %g", simd, judged, sure)
		}
	}
}
