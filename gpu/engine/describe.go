//go:build cgo

package engine

// #include <stdlib.h>
// #include "engine.h"
import "C"

import (
	"fmt"
	"unsafe"

	"leasehold.dev/model"
	"leasehold.dev/model/gguf"
	"leasehold.dev/protos/errs"
)

// description is a model as C sees it. Tensors point into the model's own mapping; the layer array is C's memory.
type description struct {
	model C.lh_model
}

func (d *description) free() { C.free(unsafe.Pointer(d.model.layer)) }

func describe(m *model.Model) (*description, error) {
	c := m.Config
	d := &description{C.lh_model{
		layers: C.uint32_t(c.Layers), embd: C.uint32_t(c.Embd), ffn: C.uint32_t(c.FFN), heads: C.uint32_t(c.Heads),
		kv_heads: C.uint32_t(c.KVHeads), head_dim: C.uint32_t(c.HeadDim), vocab: C.uint32_t(c.Vocab),
		rope_base: C.float(c.RopeBase), norm_eps: C.float(c.NormEps),
	}}
	layers := (*C.lh_layer)(C.calloc(C.size_t(c.Layers), C.sizeof_lh_layer))
	d.model.layer = layers
	t := tensors{file: m.File}
	t.fill(&d.model.tok_embd, "token_embd.weight", true)
	t.fill(&d.model.output_norm, "output_norm.weight", true)
	t.fill(&d.model.output, "output.weight", false)
	for i := range unsafe.Slice(layers, c.Layers) {
		l := &unsafe.Slice(layers, c.Layers)[i]
		for _, part := range []struct {
			to   *C.lh_tensor
			name string
		}{
			{&l.attn_norm, "attn_norm"}, {&l.q, "attn_q"}, {&l.k, "attn_k"}, {&l.v, "attn_v"}, {&l.o, "attn_output"},
			{&l.ffn_norm, "ffn_norm"}, {&l.gate, "ffn_gate"}, {&l.up, "ffn_up"}, {&l.down, "ffn_down"},
		} {
			t.fill(part.to, fmt.Sprintf("blk.%d.%s.weight", i, part.name), true)
		}
	}
	if t.err != nil {
		d.free()
		return nil, t.err
	}
	return d, nil
}

type tensors struct {
	file *gguf.File
	err  error
}

// fill describes one tensor; C checks its shape and type.
func (t *tensors) fill(to *C.lh_tensor, name string, must bool) {
	x, ok := t.file.Tensor(name)
	if !ok {
		if must && t.err == nil {
			t.err = errs.New(errs.Invalid, "engine: the model has no tensor %s", name)
		}
		return
	}
	rows := uint64(1)
	for _, n := range x.Dims[1:] {
		rows *= n
	}
	to.data = unsafe.Pointer(unsafe.SliceData(x.Data))
	to._type, to.rows, to.cols = C.uint32_t(x.Type), C.uint32_t(rows), C.uint32_t(x.Dims[0])
}
