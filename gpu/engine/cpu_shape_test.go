//go:build cgo

package engine_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/gpu/layout"
	"leasehold.dev/model"
	"leasehold.dev/model/gguf"
	"leasehold.dev/model/gguf/gguftest"
	"leasehold.dev/protos/errs"
)

// shape of a model with random weights; mixed types are by tensor name.
type shape struct {
	heads, kvHeads, headDim, embd, ffn, vocab uint64
	types                                     map[string]gguf.Type // default Q8_0
}

func (s shape) load(t *testing.T) *model.Model {
	t.Helper()
	b, rng := &gguftest.Builder{}, rand.New(rand.NewPCG(4, 5))
	b.String("general.architecture", "llama").Uint32("llama.context_length", 4096).Uint32("llama.block_count", 1)
	matrix := func(name string, cols, rows uint64) {
		typ, ok := s.types[name]
		if !ok {
			typ = gguf.Q8_0
		}
		b.Tensor(name+".weight", typ, weights(rng, typ, cols*rows), cols, rows)
	}
	norm := func(name string) {
		var data []byte
		for range s.embd {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(0.5+rng.Float32()))
		}
		b.Tensor(name+".weight", gguf.F32, data, s.embd)
	}
	q, kv := s.heads*s.headDim, s.kvHeads*s.headDim
	matrix("token_embd", s.embd, s.vocab)
	norm("output_norm")
	norm("blk.0.attn_norm")
	norm("blk.0.ffn_norm")
	matrix("blk.0.attn_q", s.embd, q)
	matrix("blk.0.attn_k", s.embd, kv)
	matrix("blk.0.attn_v", s.embd, kv)
	matrix("blk.0.attn_output", q, s.embd)
	matrix("blk.0.ffn_gate", s.embd, s.ffn)
	matrix("blk.0.ffn_up", s.embd, s.ffn)
	matrix("blk.0.ffn_down", s.ffn, s.embd)
	path := filepath.Join(t.TempDir(), "shape.gguf")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return &model.Model{File: f, Config: model.Config{
		Layers: 1, Embd: uint32(s.embd), FFN: uint32(s.ffn), Heads: uint32(s.heads), KVHeads: uint32(s.kvHeads),
		HeadDim: uint32(s.headDim), Vocab: uint32(s.vocab), ContextLength: 4096, RopeBase: 1e4, NormEps: 1e-5,
	}}
}

// weights are n elements of about unit length a row of 64: scales of 2^-10 for 8 bits, 2^-5 for 4.
func weights(rng *rand.Rand, typ gguf.Type, n uint64) (out []byte) {
	const eight, four, minusQuarter = 5 << 10, 10 << 10, 0xb400
	for range n / 32 {
		bytes := 16
		switch typ {
		case gguf.Q8_0:
			out = binary.LittleEndian.AppendUint16(out, eight)
			bytes = 32
		case gguf.Q4_1:
			out = binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(out, four), minusQuarter)
		case gguf.Q4_0:
			out = binary.LittleEndian.AppendUint16(out, four)
		default: // floats of two bytes, near 0.1 as F16
			for range 32 {
				out = binary.LittleEndian.AppendUint16(out, uint16(0x2e00+rng.Uint32N(512)))
			}
			continue
		}
		for range bytes {
			b := byte(rng.Uint32())
			if typ == gguf.Q8_0 && b == 0x80 {
				b = 0x81
			}
			out = append(out, b)
		}
	}
	return out
}

// An odd number of blocks, columns that end inside a group, every type, and every ratio of heads, against the reference.
func TestCPUShapesAgainstTheReference(t *testing.T) {
	const n = 70
	for _, s := range []shape{
		{heads: 1, kvHeads: 1, headDim: 64, embd: 96, ffn: 160, vocab: 515},
		{heads: 5, kvHeads: 1, headDim: 64, embd: 32, ffn: 32, vocab: 40},
		{heads: 4, kvHeads: 2, headDim: 64, embd: 256, ffn: 96, vocab: 48, types: map[string]gguf.Type{
			"token_embd": gguf.Q4_0, "blk.0.attn_q": gguf.Q4_1, "blk.0.attn_v": gguf.Q4_0, "blk.0.ffn_gate": gguf.Q4_1, "blk.0.ffn_up": gguf.Q4_1,
		}},
		{heads: 8, kvHeads: 2, headDim: 64, embd: 64, ffn: 64, vocab: 33, types: map[string]gguf.Type{
			"blk.0.attn_output": gguf.Q4_1, "blk.0.ffn_down": gguf.Q4_0, "blk.0.ffn_gate": gguf.Q4_0, "blk.0.ffn_up": gguf.Q4_0,
		}},
	} {
		t.Run(fmt.Sprintf("%d heads over %d, %d wide, %d tokens", s.heads, s.kvHeads, s.embd, s.vocab), func(t *testing.T) {
			m := s.load(t)
			ids := make([]int32, n)
			for i := range ids {
				ids[i] = int32(i*7) % int32(s.vocab)
			}
			ref := newBench(t, m, engine.Options{Backend: layout.Ref}, 4)
			want := ref.feed(ref.open(1, 2), ids, n)
			for _, simd := range engine.SIMDs() {
				b := newBench(t, m, engine.Options{Backend: layout.CPU, SIMD: simd, Threads: 2}, 8)
				got := b.feed(b.open(1, 2), ids, n)
				if one := b.feed(b.open(2, 2), ids, 1); !slices.Equal(digests(got), digests(one)) {
					t.Errorf("%s: row by row the bits differ", simd)
				}
				var diff, size float64
				for i := range want {
					for j := range want[i].logits {
						d := float64(got[i].logits[j] - want[i].logits[j])
						diff, size = diff+d*d, size+float64(want[i].logits[j])*float64(want[i].logits[j])
					}
				}
				if rel := math.Sqrt(diff / size); !(rel < 0.03) {
					t.Errorf("%s: relative rms difference %.4f, most is 0.03", simd, rel)
				}
			}
		})
	}
}

func TestCPURefusesWhatItsKernelsLack(t *testing.T) {
	good := shape{heads: 2, kvHeads: 1, headDim: 64, embd: 64, ffn: 64, vocab: 64}
	with := func(change func(*shape)) shape {
		s := good
		change(&s)
		return s
	}
	typed := func(name string, typ gguf.Type) shape {
		return with(func(s *shape) { s.types = map[string]gguf.Type{name: typ} })
	}
	for name, s := range map[string]shape{
		"heads of 32 dimensions":        with(func(s *shape) { s.headDim = 32 }),
		"an F16 matrix":                 typed("blk.0.attn_k", gguf.F16),
		"a BF16 matrix":                 typed("token_embd", gguf.BF16),
		"gate and up of different type": typed("blk.0.ffn_up", gguf.Q4_0),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := engine.Open(s.load(t), engine.Options{Backend: layout.CPU})
			if errs.KindOf(err) != errs.Unavailable || !strings.Contains(err.Error(), "cpu") {
				t.Errorf("Open = %v, want Unavailable that names the back end", err)
			}
		})
	}
}
