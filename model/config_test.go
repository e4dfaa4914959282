package model_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"leasehold.dev/model"
	"leasehold.dev/model/gguf"
	"leasehold.dev/model/gguf/gguftest"
	"leasehold.dev/model/modelfile"
)

// plan is a small model's file, as its keys and tensors; each may be changed or left out before it is built.
type plan struct {
	arch    string
	keys    map[string]any
	tensors map[string]shape
}

type shape struct {
	typ  gguf.Type
	dims []uint64
}

// tiny has two layers, four query heads over two key heads, and no output matrix of its own.
func tiny() *plan {
	p := &plan{arch: "llama", keys: map[string]any{
		"block_count": uint32(2), "embedding_length": uint32(64), "feed_forward_length": uint32(96), "context_length": uint32(128),
		"attention.head_count": uint32(4), "attention.head_count_kv": uint32(2), "attention.layer_norm_rms_epsilon": float32(1e-5),
		"rope.freq_base": float32(1e20),
	}, tensors: map[string]shape{
		"token_embd.weight": {gguf.Q8_0, []uint64{64, 300}}, "output_norm.weight": {gguf.F32, []uint64{64}},
	}}
	for i := range 2 {
		for name, s := range map[string]shape{
			"attn_norm": {gguf.F32, []uint64{64}}, "ffn_norm": {gguf.F32, []uint64{64}},
			"attn_q": {gguf.Q4_1, []uint64{64, 64}}, "attn_k": {gguf.Q4_0, []uint64{64, 32}}, "attn_v": {gguf.F16, []uint64{64, 32}},
			"attn_output": {gguf.BF16, []uint64{64, 64}}, "ffn_gate": {gguf.F32, []uint64{64, 96}},
			"ffn_up": {gguf.F32, []uint64{64, 96}}, "ffn_down": {gguf.F32, []uint64{96, 64}},
		} {
			p.tensors[fmt.Sprintf("blk.%d.%s.weight", i, name)] = s
		}
	}
	return p
}

func (p *plan) builder() *gguftest.Builder {
	b := (&gguftest.Builder{}).String("general.architecture", p.arch)
	for key, v := range p.keys {
		switch key = "llama." + key; v := v.(type) {
		case uint32:
			b.Uint32(key, v)
		case float32:
			b.Float32(key, v)
		case string:
			b.String(key, v)
		}
	}
	for name, s := range p.tensors {
		if s.typ.Known() {
			b.Zeros(name, s.typ, s.dims...)
		} else {
			b.Tensor(name, s.typ, make([]byte, 64), s.dims...)
		}
	}
	return b
}

func (p *plan) config(t *testing.T) (model.Config, error) {
	t.Helper()
	f, err := gguf.Parse(p.builder().Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return model.ReadConfig(f)
}

func TestReadConfig(t *testing.T) {
	want := model.Config{
		Architecture: "llama", Layers: 2, Embd: 64, FFN: 96, Heads: 4, KVHeads: 2, HeadDim: 16, Vocab: 300, ContextLength: 128,
		RopeBase: 1e20, NormEps: 1e-5,
	}
	for _, c := range []struct {
		name   string
		change func(*plan, *model.Config)
	}{
		{"a small model", func(*plan, *model.Config) {}},
		{"an output matrix of its own", func(p *plan, _ *model.Config) { p.tensors["output.weight"] = shape{gguf.Q8_0, []uint64{64, 300}} }},
		{"no rope base: 10000", func(p *plan, c *model.Config) { delete(p.keys, "rope.freq_base"); c.RopeBase = 10000 }},
		{"rope scaling that says none", func(p *plan, _ *model.Config) { p.keys["rope.scaling.type"] = "none" }},
		{"no experts", func(p *plan, _ *model.Config) { p.keys["expert_count"] = uint32(0) }},
		{"as many key heads as query heads, if the file names none", func(p *plan, c *model.Config) {
			delete(p.keys, "attention.head_count_kv")
			for i := range 2 {
				for _, name := range []string{"attn_k", "attn_v"} {
					p.tensors[fmt.Sprintf("blk.%d.%s.weight", i, name)] = shape{gguf.F32, []uint64{64, 64}}
				}
			}
			c.KVHeads = 4
		}},
		{"heads wider than the stream's share", func(p *plan, c *model.Config) {
			p.keys["attention.key_length"], p.keys["attention.value_length"], p.keys["rope.dimension_count"] = uint32(32), uint32(32), uint32(32)
			for i := range 2 {
				p.tensors[fmt.Sprintf("blk.%d.attn_q.weight", i)] = shape{gguf.F32, []uint64{64, 128}}
				p.tensors[fmt.Sprintf("blk.%d.attn_k.weight", i)] = shape{gguf.F32, []uint64{64, 64}}
				p.tensors[fmt.Sprintf("blk.%d.attn_v.weight", i)] = shape{gguf.F32, []uint64{64, 64}}
				p.tensors[fmt.Sprintf("blk.%d.attn_output.weight", i)] = shape{gguf.F32, []uint64{128, 64}}
			}
			c.HeadDim = 32
		}},
	} {
		p, want := tiny(), want
		c.change(p, &want)
		got, err := p.config(t)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", c.name, err, diff)
		}
	}
}

func TestReadConfigRefuses(t *testing.T) {
	key := func(k string, v any) func(*plan) { return func(p *plan) { p.keys[k] = v } }
	tensor := func(name string, typ gguf.Type, dims ...uint64) func(*plan) {
		return func(p *plan) { p.tensors[name] = shape{typ, dims} }
	}
	for _, c := range []struct {
		name   string
		change func(*plan)
		want   error
	}{
		{"another architecture", func(p *plan) { p.arch = "qwen2" }, gguf.ErrUnsupported},
		{"no layers", key("block_count", uint32(0)), gguf.ErrFormat},
		{"more layers than the file has", key("block_count", uint32(math.MaxInt32)), gguf.ErrFormat},
		{"fewer layers than the file has", key("block_count", uint32(1)), gguf.ErrUnsupported},
		{"a count over 31 bits", key("block_count", uint32(math.MaxUint32)), gguf.ErrFormat},
		{"a count that is text", key("embedding_length", "64"), gguf.ErrFormat},
		{"no context length", func(p *plan) { delete(p.keys, "context_length") }, gguf.ErrFormat},
		{"an epsilon of 0", key("attention.layer_norm_rms_epsilon", float32(0)), gguf.ErrFormat},
		{"an epsilon that is no number", key("attention.layer_norm_rms_epsilon", float32(math.NaN())), gguf.ErrFormat},
		{"an infinite rope base", key("rope.freq_base", float32(math.Inf(1))), gguf.ErrFormat},
		{"a negative rope base", key("rope.freq_base", float32(-1)), gguf.ErrFormat},
		{"query heads that key heads do not divide", key("attention.head_count_kv", uint32(3)), gguf.ErrFormat},
		{"more heads than dimensions", key("attention.head_count", uint32(128)), gguf.ErrFormat},
		{"heads of an odd size", func(p *plan) {
			p.keys["attention.key_length"], p.keys["attention.value_length"] = uint32(15), uint32(15)
		}, gguf.ErrFormat},
		{"keys and values of different size", key("attention.value_length", uint32(8)), gguf.ErrUnsupported},
		{"rope over half a head", key("rope.dimension_count", uint32(8)), gguf.ErrUnsupported},
		{"rope scaling", key("rope.scaling.type", "yarn"), gguf.ErrUnsupported},
		{"rope scaled by a factor", key("rope.scaling.factor", float32(4)), gguf.ErrUnsupported},
		{"experts", key("expert_count", uint32(8)), gguf.ErrUnsupported},
		{"a sliding window", key("attention.sliding_window", uint32(4096)), gguf.ErrUnsupported},
		{"another vocabulary size", key("vocab_size", uint32(299)), gguf.ErrFormat},

		{"no embedding", func(p *plan) { delete(p.tensors, "token_embd.weight") }, gguf.ErrFormat},
		{"an embedding that is a vector", tensor("token_embd.weight", gguf.F32, 64), gguf.ErrFormat},
		{"no last norm", func(p *plan) { delete(p.tensors, "output_norm.weight") }, gguf.ErrFormat},
		{"a layer without its keys", func(p *plan) { delete(p.tensors, "blk.1.attn_k.weight") }, gguf.ErrFormat},
		{"queries of the wrong shape", tensor("blk.0.attn_q.weight", gguf.F32, 64, 65), gguf.ErrFormat},
		{"a matrix with its sides exchanged", tensor("blk.0.ffn_down.weight", gguf.F32, 64, 96), gguf.ErrFormat},
		{"a matrix with a third side", tensor("blk.0.attn_q.weight", gguf.F32, 64, 64, 1), gguf.ErrFormat},
		{"an output of another vocabulary", tensor("output.weight", gguf.F32, 64, 299), gguf.ErrFormat},
		{"a matrix of a type that is not known", tensor("blk.0.attn_q.weight", 12, 64, 64), gguf.ErrUnsupported},
		{"a norm that is not F32", tensor("blk.0.attn_norm.weight", gguf.F16, 64), gguf.ErrUnsupported},
		{"a bias", tensor("blk.0.attn_q.bias", gguf.F32, 64), gguf.ErrUnsupported},
		{"frequencies of its own", tensor("rope_freqs.weight", gguf.F32, 8), gguf.ErrUnsupported},
	} {
		p := tiny()
		c.change(p)
		if got, err := p.config(t); !errors.Is(err, c.want) || got != (model.Config{}) {
			t.Errorf("%s: ReadConfig = %+v, %v, want %v", c.name, got, err, c.want)
		}
	}
}

func TestTheModelsConfig(t *testing.T) {
	f, err := gguf.Open(modelfile.Path(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := model.ReadConfig(f)
	want := model.Config{
		Architecture: "llama", Layers: 30, Embd: 576, FFN: 1536, Heads: 9, KVHeads: 3, HeadDim: 64, Vocab: 49152, ContextLength: 8192,
		RopeBase: 100000, NormEps: 1e-5,
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("ReadConfig: %v (-want +got):\n%s", err, diff)
	}
}
