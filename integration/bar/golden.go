package bar

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/integration/single"
	"leasehold.dev/model"
	"leasehold.dev/model/chat"
)

// golden is model/testdata/smollm2.json: what llama.cpp ("default") and an independent float32 pass ("ref") gave.
type golden struct {
	Prompts []goldenPrompt `json:"prompts"`
	Cases   []struct {
		Text string  `json:"text"`
		IDs  []int32 `json:"ids"`
		Raw  []int32 `json:"ids_no_special"`
	} `json:"tokenizer_cases"`
}

type goldenPrompt struct {
	Name     string `json:"name"`
	Messages []struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	} `json:"messages"`
	IDs  []int32   `json:"prompt_ids"`
	Peer goldenRun `json:"default"`
	Ref  goldenRun `json:"ref"`
}

type goldenRun struct {
	Top []struct {
		ID    int32   `json:"id"`
		Logit float64 `json:"logit"`
	} `json:"top5"`
	IDs    []int32   `json:"ids"`
	Margin []float64 `json:"margin_top1_top2"`
}

func readGolden(root string) (golden, error) {
	var g golden
	b, err := os.ReadFile(filepath.Join(root, "model", "testdata", "smollm2.json"))
	if err != nil {
		return g, err
	}
	return g, json.Unmarshal(b, &g)
}

const (
	refTolerance = 0.02 // of each of ref's top 5 logits
	sureMargin   = 1.0  // where the peer's margin is over this, the top token must agree
	peerRMS      = 0.4  // root mean square difference of the peer's top 5 logits
	peerMax      = 1.2  // the largest
)

func runGolden(ctx context.Context, e *Env) (Result, error) {
	g, err := readGolden(filepath.Dir(filepath.Dir(e.Bin)))
	if err != nil {
		return Result{}, err
	}
	m, err := e.load()
	if err != nil {
		return Result{}, err
	}
	defer m.Close()
	figures := map[string]any{}
	tok := goldenTokens(m, g, figures)
	ref, err := e.goldenRef(ctx, m, g, figures)
	if err != nil {
		return Result{Figures: figures}, err
	}
	met := tok && ref
	for _, simd := range engine.SIMDs() {
		ok, err := e.goldenCPU(ctx, m, g, simd, figures)
		if err != nil {
			return Result{Figures: figures}, err
		}
		met = met && ok
	}
	if len(engine.SIMDs()) == 0 {
		return Result{Figures: figures}, fmt.Errorf("this build has no cpu back end")
	}
	return Result{Met: met, Figures: figures}, nil
}

func goldenTokens(m *model.Model, g golden, figures map[string]any) bool {
	equal := 0
	for _, c := range g.Cases {
		if slices.Equal(m.Tokenizer.Encode(c.Text, true), c.IDs) && slices.Equal(m.Tokenizer.Encode(c.Text, false), c.Raw) {
			equal++
		}
	}
	prompts := 0
	for _, p := range g.Prompts {
		var msgs []chat.Message
		for _, msg := range p.Messages {
			msgs = append(msgs, chat.Message{Role: msg.Role, Content: msg.Content})
		}
		text, err := m.Template.Render(msgs, true)
		if err == nil && slices.Equal(m.Tokenizer.Encode(text, true), p.IDs) {
			prompts++
		}
	}
	figures["tokenizer_equal"], figures["tokenizer_cases"] = equal, len(g.Cases)
	figures["prompts_equal"], figures["prompts"] = prompts, len(g.Prompts)
	return equal == len(g.Cases) && prompts == len(g.Prompts) && equal >= 25 && prompts >= 5
}

func (e *Env) goldenRef(ctx context.Context, m *model.Model, g golden, figures map[string]any) (bool, error) {
	r, err := single.Open(m, engine.Options{Backend: "ref-f32", Threads: 2, MaxTokens: 64, MaxSeqs: 1}, 16)
	if err != nil {
		return false, err
	}
	defer r.Close()
	equal, total, worst := 0, 0, 0.0
	for _, p := range g.Prompts {
		s, err := r.Open(len(p.IDs) + len(p.Ref.IDs))
		if err != nil {
			return false, err
		}
		in := p.IDs
		for i, want := range p.Ref.IDs {
			out, err := s.Feed(in, 64)
			if err != nil {
				return false, fmt.Errorf("ref, prompt %s, token %d: %w", p.Name, i, err)
			}
			if i == 0 {
				for _, t := range p.Ref.Top {
					worst = max(worst, math.Abs(float64(out.Logits[t.ID])-t.Logit))
				}
			}
			top := single.Top(out.Logits)
			total++
			if top == want {
				equal++
			}
			in = []int32{want}
			if ctx.Err() != nil {
				return false, ctx.Err()
			}
		}
		e.sayf("golden: ref, prompt %-10s %d of %d tokens so far, largest difference of a top-5 logit %.5f", p.Name, equal, total, worst)
		if err := s.Close(); err != nil {
			return false, err
		}
	}
	figures["ref_tokens_equal"], figures["ref_tokens"], figures["ref_logit_max_diff"] = equal, total, worst
	return equal == total && total == 240 && worst <= refTolerance, nil
}

func (e *Env) goldenCPU(ctx context.Context, m *model.Model, g golden, simd string, figures map[string]any) (bool, error) {
	r, err := single.Open(m, engine.Options{Backend: "cpu", SIMD: simd, Threads: 2, MaxTokens: 512, MaxSeqs: 1, CacheDir: e.Cache}, 16)
	if err != nil {
		return false, err
	}
	defer r.Close()
	sure, agree, worst, worstRMS, all, parted := 0, 0, 0.0, 0.0, 0, 0
	for _, p := range g.Prompts {
		s, err := r.Open(len(p.IDs) + len(p.Peer.IDs))
		if err != nil {
			return false, err
		}
		in := p.IDs
		for i, want := range p.Peer.IDs { // teacher-forced: always the peer's token next
			out, err := s.Feed(in, 512)
			if err != nil {
				return false, fmt.Errorf("cpu %s, prompt %s, token %d: %w", simd, p.Name, i, err)
			}
			if i == 0 {
				var sum float64
				for _, t := range p.Peer.Top {
					d := math.Abs(float64(out.Logits[t.ID]) - t.Logit)
					worst, sum = max(worst, d), sum+d*d
				}
				worstRMS = max(worstRMS, math.Sqrt(sum/float64(len(p.Peer.Top))))
			}
			top := single.Top(out.Logits)
			all++
			if top != want {
				parted++
				e.sayf("golden: cpu %s parts from the peer in %s at token %d: %d, the peer %d, whose margin is %.3f", simd, p.Name, i, top, want, p.Peer.Margin[i])
			}
			if p.Peer.Margin[i] > sureMargin {
				sure++
				if top == want {
					agree++
				}
			}
			in = []int32{want}
			if ctx.Err() != nil {
				return false, ctx.Err()
			}
		}
		if err := s.Close(); err != nil {
			return false, err
		}
	}
	figures["cpu_"+simd] = map[string]any{"sure_tokens": sure, "sure_equal": agree, "tokens": all, "parted": parted,
		"top5_rms_worst": worstRMS, "top5_max_diff": worst}
	return agree == sure && sure > 0 && worst <= peerMax && worstRMS <= peerRMS, nil
}
