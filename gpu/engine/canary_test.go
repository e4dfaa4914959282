//go:build cgo

package engine_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/gpu/layout"
	"leasehold.dev/model"
	"leasehold.dev/model/canary"
)

func loadCanary(t testing.TB, context uint32) *model.Model {
	t.Helper()
	data, err := canary.File(context)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "canary.gguf")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := model.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// answer is what the model says greedily after a prompt of 512 tokens a step, and how long the prompt took.
func (b *bench) answer(slot uint32, prompt []int32, n int) (got []int32, prefill time.Duration) {
	b.t.Helper()
	s := b.open(slot, uint32(len(prompt)+n)/layout.PageTokens+1)
	defer func() { _ = b.e.CloseSeq(s.id) }()
	start := time.Now()
	for len(prompt) > 0 {
		part := prompt[:min(512, len(prompt))]
		prompt = prompt[len(part):]
		want := engine.None
		if len(prompt) == 0 {
			want = engine.Last
		}
		st := b.step(engine.Work{Seq: s.id, Pos: s.pos, Tokens: part, Want: want})
		s.pos += uint32(len(part))
		if len(st.Faults) > 0 || st.Results[0].Bad {
			b.t.Fatalf("step to %d: faults %v, bad %v", s.pos, st.Faults, st.Results[0].Bad)
		}
		if want == engine.Last {
			got = append(got, argmax(st.Results[0].Logits[0]))
		}
	}
	prefill = time.Since(start)
	for len(got) < n {
		st := b.step(engine.Work{Seq: s.id, Pos: s.pos, Tokens: got[len(got)-1:], Want: engine.Last})
		s.pos++
		got = append(got, argmax(st.Results[0].Logits[0]))
	}
	return got, prefill
}

// Three tenants share a pool, and each gets its own front, middle and end back.
func TestTheCanaryEchoesExactly(t *testing.T) {
	m := loadCanary(t, 8192)
	for _, o := range backends() {
		o.Threads = 2
		lengths := []int{canary.MinPrompt, 63, 64, 65, 200, 640, 4096}
		if o.Backend != layout.CPU {
			lengths = lengths[:6] // the reference takes a minute for 4,096
		}
		t.Run(o.Backend+o.SIMD, func(t *testing.T) {
			b := newBench(t, m, o, 400)
			for _, n := range lengths {
				for tenant := range 3 {
					e, err := canary.New(tenant, n, uint64(n))
					if err != nil {
						t.Fatal(err)
					}
					got, _ := b.answer(uint32(tenant+1), e.Tokens, canary.Answer)
					if v := canary.Judge(e, got); !v.Exact() {
						t.Errorf("%d tokens, tenant %d: %v", n, tenant, v)
					}
				}
			}
		})
	}
}

// Long prompts cost the square of their length; the time of one layer is half of what this shows.
func BenchmarkCanaryPrefill(bm *testing.B) {
	for _, n := range []int{16384, 65536, 131072} {
		bm.Run(strconv.Itoa(n), func(bm *testing.B) {
			b := newBench(bm, loadCanary(bm, uint32(n+canary.Answer)), engine.Options{Backend: layout.CPU, Threads: 2}, uint32(n/layout.PageTokens+8))
			e, err := canary.New(0, n, 1)
			if err != nil {
				bm.Fatal(err)
			}
			var total time.Duration
			for bm.Loop() {
				b.next = 0 // the pages of the run before
				got, took := b.answer(1, e.Tokens, canary.Answer)
				total += took
				if v := canary.Judge(e, got); !v.Exact() {
					bm.Fatal(v)
				}
			}
			bm.ReportMetric(total.Seconds()/float64(bm.N), "s/prompt")
			bm.ReportMetric(float64(n)*float64(n)*4*64/total.Seconds()*float64(bm.N)/1e9, "GFLOP/s") // as if every product were taken
		})
	}
}
