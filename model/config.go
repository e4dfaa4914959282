package model

import (
	"fmt"
	"math"

	"leasehold.dev/model/gguf"
)

// Config is a llama-architecture model's shape.
type Config struct {
	Architecture  string // general.architecture
	Layers        uint32
	Embd          uint32 // width of the residual stream
	FFN           uint32 // width inside the feed-forward block
	Heads         uint32 // query heads; a multiple of KVHeads
	KVHeads       uint32
	HeadDim       uint32 // even, and all of it turns with the position
	Vocab         uint32
	ContextLength uint32 // what the file says that it was trained for
	RopeBase      float32
	NormEps       float32
}

// ReadConfig reads the shape and checks every tensor of the file against it: each that the architecture needs is there
// with its shape and a known type, and there is no other. "output.weight" may be absent; the embedding is the output
// then.
func ReadConfig(f *gguf.File) (Config, error) {
	r := reader{file: f}
	c := r.config()
	if r.err != nil {
		return Config{}, r.err
	}
	if err := c.check(); err != nil {
		return Config{}, err
	}
	if err := c.checkTensors(f); err != nil {
		return Config{}, err
	}
	return c, nil
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: model: %s", gguf.ErrFormat, fmt.Sprintf(format, args...))
}

func unsupported(format string, args ...any) error {
	return fmt.Errorf("%w: model: %s", gguf.ErrUnsupported, fmt.Sprintf(format, args...))
}

// reader reads keys of one architecture; the first error sticks.
type reader struct {
	file *gguf.File
	err  error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *reader) number(key string) uint32 {
	n, ok := r.file.Uint32("llama." + key)
	if !ok || n == 0 || n > math.MaxInt32 {
		r.fail(malformed("llama.%s is absent or out of range", key))
	}
	return n
}

// numberOr reads a key that has a default.
func (r *reader) numberOr(key string, def uint32) uint32 {
	if !r.file.Has("llama." + key) {
		return def
	}
	return r.number(key)
}

func (r *reader) positive(key string) float32 {
	x, ok := r.file.Float32("llama." + key)
	if !ok || !(x > 0) || math.IsInf(float64(x), 0) {
		r.fail(malformed("llama.%s is absent or no positive number", key))
	}
	return x
}

func (r *reader) config() Config {
	arch, _ := r.file.String("general.architecture")
	if arch != "llama" {
		r.fail(unsupported("architecture %.32q (llama is known)", arch))
		return Config{}
	}
	c := Config{
		Architecture:  arch,
		Layers:        r.number("block_count"),
		Embd:          r.number("embedding_length"),
		FFN:           r.number("feed_forward_length"),
		Heads:         r.number("attention.head_count"),
		ContextLength: r.number("context_length"),
		NormEps:       r.positive("attention.layer_norm_rms_epsilon"),
		RopeBase:      10000,
	}
	if r.file.Has("llama.rope.freq_base") {
		c.RopeBase = r.positive("rope.freq_base")
	}
	if r.err != nil {
		return c
	}
	c.KVHeads = r.numberOr("attention.head_count_kv", c.Heads)
	c.HeadDim = r.numberOr("attention.key_length", c.Embd/c.Heads)
	if v := r.numberOr("attention.value_length", c.HeadDim); v != c.HeadDim {
		r.fail(unsupported("heads of %d for keys and %d for values", c.HeadDim, v))
	}
	if d := r.numberOr("rope.dimension_count", c.HeadDim); d != c.HeadDim {
		r.fail(unsupported("rope over %d of %d dimensions", d, c.HeadDim))
	}
	c.Vocab = r.vocab()
	r.refuse()
	return c
}

// vocab is the embedding's rows; llama.vocab_size must agree if it is there.
func (r *reader) vocab() uint32 {
	t, ok := r.file.Tensor("token_embd.weight")
	if !ok || len(t.Dims) != 2 || t.Dims[1] > math.MaxInt32 {
		r.fail(malformed("token_embd.weight is absent or no matrix"))
		return 0
	}
	rows := uint32(t.Dims[1])
	if n := r.numberOr("vocab_size", rows); n != rows {
		r.fail(malformed("llama.vocab_size is %d, the embedding has %d rows", n, rows))
	}
	return rows
}

// refuse fails for keys that change the arithmetic in a way that is not known here.
func (r *reader) refuse() {
	if s, ok := r.file.String("llama.rope.scaling.type"); ok && s != "none" {
		r.fail(unsupported("rope scaling %.32q", s))
	}
	for _, key := range []string{"rope.scale_linear", "rope.scaling.factor"} {
		if x, ok := r.file.Float32("llama." + key); ok && x != 1 && x != 0 {
			r.fail(unsupported("llama.%s = %g", key, x))
		}
	}
	for _, key := range []string{"expert_count", "attention.sliding_window"} {
		if n, ok := r.file.Uint32("llama." + key); ok && n != 0 {
			r.fail(unsupported("llama.%s = %d", key, n))
		}
	}
}

func (c Config) check() error {
	if c.Heads%c.KVHeads != 0 {
		return malformed("%d query heads for %d key heads", c.Heads, c.KVHeads)
	}
	if c.HeadDim == 0 || c.HeadDim%2 != 0 {
		return malformed("heads of %d dimensions", c.HeadDim)
	}
	return nil
}
