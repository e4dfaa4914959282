package model

import (
	"slices"
	"strconv"

	"leasehold.dev/model/gguf"
)

// want is a tensor that the architecture has.
type want struct {
	name     string
	dims     []uint64
	optional bool
}

// block is the tensors of one layer; a name's prefix is "blk.<layer>.".
func (c Config) block() []want {
	embd, ffn := uint64(c.Embd), uint64(c.FFN)
	q, kv := uint64(c.Heads)*uint64(c.HeadDim), uint64(c.KVHeads)*uint64(c.HeadDim)
	return []want{
		{name: "attn_norm.weight", dims: []uint64{embd}},
		{name: "attn_q.weight", dims: []uint64{embd, q}},
		{name: "attn_k.weight", dims: []uint64{embd, kv}},
		{name: "attn_v.weight", dims: []uint64{embd, kv}},
		{name: "attn_output.weight", dims: []uint64{q, embd}},
		{name: "ffn_norm.weight", dims: []uint64{embd}},
		{name: "ffn_gate.weight", dims: []uint64{embd, ffn}},
		{name: "ffn_up.weight", dims: []uint64{embd, ffn}},
		{name: "ffn_down.weight", dims: []uint64{ffn, embd}},
	}
}

func (c Config) outside() []want {
	embd, vocab := uint64(c.Embd), uint64(c.Vocab)
	return []want{
		{name: "token_embd.weight", dims: []uint64{embd, vocab}},
		{name: "output_norm.weight", dims: []uint64{embd}},
		{name: "output.weight", dims: []uint64{embd, vocab}, optional: true},
	}
}

func (c Config) checkTensors(f *gguf.File) error {
	known := 0
	check := func(prefix string, ws []want) error {
		for _, w := range ws {
			found, err := w.check(f, prefix+w.name)
			if err != nil {
				return err
			}
			if found {
				known++
			}
		}
		return nil
	}
	if err := check("", c.outside()); err != nil {
		return err
	}
	block := c.block()
	for i := range c.Layers { // ends at the first layer that the file lacks
		if err := check("blk."+strconv.FormatUint(uint64(i), 10)+".", block); err != nil {
			return err
		}
	}
	if have := len(f.Tensors()); have != known {
		return unsupported("%d tensors, of which %d are known", have, known)
	}
	return nil
}

func (w want) check(f *gguf.File, name string) (found bool, err error) {
	t, ok := f.Tensor(name)
	switch {
	case !ok && w.optional:
		return false, nil
	case !ok:
		return false, malformed("tensor %s is absent", name)
	case !t.Type.Known():
		return false, unsupported("tensor %s of %v", name, t.Type)
	case len(w.dims) == 1 && t.Type != gguf.F32:
		return false, unsupported("tensor %s of %v; a norm is F32", name, t.Type)
	case !slices.Equal(t.Dims, w.dims):
		return false, malformed("tensor %s is %v, not %v", name, t.Dims, w.dims)
	}
	return true, nil
}
