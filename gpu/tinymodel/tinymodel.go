// Package tinymodel makes a model for tests: the real file's tokenizer on a llama of two small layers with random
// weights, so that a step on any back end takes milliseconds. It says nothing sensible, always the same, and every token
// of its answers depends on the whole prompt.
package tinymodel

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"leasehold.dev/model"
	"leasehold.dev/model/gguf"
	"leasehold.dev/model/gguf/gguftest"
	"leasehold.dev/model/modelfile"
)

const (
	layers = 2
	embd   = 128
	ffn    = 256
	heads  = 2
	head   = embd / heads
)

// Options of a file. Files of different seeds have different weights.
type Options struct {
	Context uint32 // context length; default 4096
	Seed    uint64
}

// Write makes a model file in the test's own directory and returns its path.
func Write(t testing.TB, o Options) string {
	t.Helper()
	if o.Context == 0 {
		o.Context = 4096
	}
	full, err := gguf.Open(modelfile.Path(t))
	if err != nil {
		t.Fatalf("tiny model: %v", err)
	}
	defer func() { _ = full.Close() }()
	path := filepath.Join(t.TempDir(), "tiny.gguf")
	if err := os.WriteFile(path, build(full, o), 0o600); err != nil {
		t.Fatalf("tiny model: %v", err)
	}
	return path
}

// Load is Write and model.Load; the model is closed when the test ends.
func Load(t testing.TB, o Options) *model.Model {
	t.Helper()
	m, err := model.Load(Write(t, o))
	if err != nil {
		t.Fatalf("tiny model: %v", err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

func build(full *gguf.File, o Options) []byte {
	b := &gguftest.Builder{}
	for _, key := range full.Keys() {
		if kind, data, ok := full.Raw(key); ok && !strings.HasPrefix(key, "llama.") {
			b.Key(key, kind).Raw(data...)
		}
	}
	b.Uint32("llama.context_length", o.Context).Uint32("llama.embedding_length", embd).Uint32("llama.block_count", layers).
		Uint32("llama.feed_forward_length", ffn).Uint32("llama.attention.head_count", heads).
		Uint32("llama.attention.head_count_kv", 1).Uint32("llama.rope.dimension_count", head).
		Float32("llama.attention.layer_norm_rms_epsilon", 1e-5).Float32("llama.rope.freq_base", 1e4)

	rng := rand.New(rand.NewPCG(o.Seed, 1))
	matrix := func(name string, cols, rows uint64) { b.Tensor(name, gguf.Q8_0, blocks(rng, cols*rows), cols, rows) }
	norm := func(name string) { b.Tensor(name, gguf.F32, ones(embd), embd) }
	tokens, _ := full.Strings("tokenizer.ggml.tokens")
	matrix("token_embd.weight", embd, uint64(len(tokens)))
	norm("output_norm.weight")
	matrix("output.weight", embd, uint64(len(tokens)))
	for i := range layers {
		blk := fmt.Sprintf("blk.%d.", i)
		norm(blk + "attn_norm.weight")
		matrix(blk+"attn_q.weight", embd, embd)
		matrix(blk+"attn_k.weight", embd, head)
		matrix(blk+"attn_v.weight", embd, head)
		matrix(blk+"attn_output.weight", embd, embd)
		norm(blk + "ffn_norm.weight")
		matrix(blk+"ffn_gate.weight", embd, ffn)
		matrix(blk+"ffn_up.weight", embd, ffn)
		matrix(blk+"ffn_down.weight", ffn, embd)
	}
	return b.Bytes()
}

// blocks are n elements of Q8_0: float16 of 2^-8 as scale, and 32 random bytes.
func blocks(rng *rand.Rand, n uint64) []byte {
	const scale = (15 - 8) << 10
	out := make([]byte, 0, n/32*34)
	for range n / 32 {
		out = binary.LittleEndian.AppendUint16(out, scale)
		for range 4 {
			out = binary.LittleEndian.AppendUint64(out, rng.Uint64())
		}
	}
	return out
}

func ones(n int) []byte {
	out := make([]byte, 0, 4*n)
	for range n {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(1))
	}
	return out
}
