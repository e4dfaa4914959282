package canary

import (
	"fmt"
	"math"

	"leasehold.dev/model/gguf"
	"leasehold.dev/model/gguf/write"
)

// The model's shape, and where in the residual stream things are. Blocks of 32 are quantised together, so the parts that
// attention writes have blocks of their own. The shadow holds the code of a token without a value, so that every row has
// the same norm.
const (
	embd    = 256
	headDim = 64
	ffn     = 32
	clock   = 12 // pairs of a head that turn
	eps     = 1e-5
	// RopeBase is the base of the rotary frequencies.
	RopeBase = 1e20

	atCode   = 0
	atValue  = 40
	atShadow = 80
	atOne    = 120
	atPrev   = 128
	atOut    = 192
)

// Weights of the attention scores, which are divided by 8. One step off the previous token costs 90 nats in layer 1; in
// layer 2 a wrong token 15 or more, and the clock prefers the nearer of two equal ones by a few.
const (
	previous = 40
	content  = 6
	nearer   = 2
)

// File is the model as a GGUF file that promises context tokens. It is always the same for a context.
func File(context uint32) ([]byte, error) {
	if context < MinPrompt+Answer {
		return nil, fmt.Errorf("canary: context %d holds no prompt: want at least %d", context, MinPrompt+Answer)
	}
	b := &write.Builder{}
	metadata(b, context)
	matrix(b, "token_embd", Vocabulary, embd, embedding)
	matrix(b, "output", Vocabulary, embd, func(w cells) {
		for id := range Vocabulary {
			for d := range codeDims {
				w.set(id, atOut+d, sign(id, d))
			}
		}
	})
	layer(b, 0, 2*codeDims+1, previousToken)
	layer(b, 1, 3*codeDims+1, whatFollowed)
	norm(b, "output_norm", 4*codeDims+1)
	return b.Checked()
}

func embedding(w cells) {
	for id := range Vocabulary {
		value := atValue
		if silent(int32(id)) {
			value = atShadow
		}
		for d := range codeDims {
			w.set(id, atCode+d, sign(id, d))
			w.set(id, value+d, sign(id, d))
		}
		w.set(id, atOne, 1)
	}
}

// heads are the four matrices of an attention block.
type heads struct{ q, k, v, o cells }

// previousToken attends to position i-1 and writes its code to atPrev.
func previousToken(h heads) {
	for i := range clock {
		theta := math.Pow(RopeBase, -2*float64(i)/headDim)
		h.q.set(2*i, atOne, previous)
		h.k.set(2*i, atOne, previous*math.Cos(theta))
		h.k.set(2*i+1, atOne, previous*math.Sin(theta))
	}
	for d := range codeDims {
		h.v.set(d, atCode+d, 1)
		h.o.set(atPrev+d, d, 1)
	}
}

// whatFollowed attends to the token that has this one before it and writes its value to atOut.
func whatFollowed(h heads) {
	for i := range clock {
		h.q.set(2*i, atOne, nearer)
		h.k.set(2*i, atOne, 1)
	}
	for d := range codeDims {
		h.q.set(2*clock+d, atCode+d, content)
		h.k.set(2*clock+d, atPrev+d, 1)
		h.v.set(d, atValue+d, 1)
		h.o.set(atOut+d, d, 1)
	}
}

// layer writes block i, whose input has the given number of elements that are 1 or -1; the others are 0.
func layer(b *write.Builder, i, ones int, fill func(heads)) {
	h := heads{newCells(headDim, embd), newCells(headDim, embd), newCells(headDim, embd), newCells(embd, headDim)}
	fill(h)
	at := fmt.Sprintf("blk.%d.", i)
	norm(b, at+"attn_norm", ones)
	for _, m := range []struct {
		name string
		w    cells
	}{{"attn_q", h.q}, {"attn_k", h.k}, {"attn_v", h.v}, {"attn_output", h.o}} {
		matrix(b, at+m.name, len(m.w), len(m.w[0]), func(w cells) { copy(w, m.w) })
	}
	norm(b, at+"ffn_norm", embd)
	matrix(b, at+"ffn_gate", ffn, embd, func(cells) {})
	matrix(b, at+"ffn_up", ffn, embd, func(cells) {})
	matrix(b, at+"ffn_down", embd, ffn, func(cells) {})
}

// norm writes the weights that undo RMSNorm for a row of so many elements that are 1 or -1.
func norm(b *write.Builder, name string, ones int) {
	row := make(write.Row, embd)
	for i := range row {
		row[i] = math.Sqrt(float64(ones)/embd + eps)
	}
	b.Tensor(name+".weight", gguf.F32, write.Float32s(row), embd)
}

// cells are a matrix by rows.
type cells []write.Row

func newCells(rows, cols int) cells {
	c := make(cells, rows)
	for i := range c {
		c[i] = make(write.Row, cols)
	}
	return c
}

func (c cells) set(row, col int, x float64) { c[row][col] = x }

func matrix(b *write.Builder, name string, rows, cols int, fill func(cells)) {
	c := newCells(rows, cols)
	fill(c)
	b.Tensor(name+".weight", gguf.Q8_0, write.Q8(c...), uint64(cols), uint64(rows))
}

func metadata(b *write.Builder, context uint32) {
	b.String("general.architecture", "llama").String("general.name", "canary")
	b.Uint32("llama.context_length", context).Uint32("llama.embedding_length", embd).Uint32("llama.block_count", 2).
		Uint32("llama.feed_forward_length", ffn).Uint32("llama.attention.head_count", 1).Uint32("llama.attention.head_count_kv", 1).
		Uint32("llama.attention.key_length", headDim).Uint32("llama.attention.value_length", headDim).
		Uint32("llama.rope.dimension_count", headDim).Uint32("llama.vocab_size", Vocabulary).
		Float32("llama.attention.layer_norm_rms_epsilon", eps).Float32("llama.rope.freq_base", RopeBase)
	var pieces []string
	var kinds []int32
	for id := range int32(Vocabulary) {
		piece, kind := entry(id)
		pieces, kinds = append(pieces, piece), append(kinds, kind)
	}
	b.String("tokenizer.ggml.model", "gpt2").String("tokenizer.ggml.pre", "gpt-2").
		Strings("tokenizer.ggml.tokens", pieces...).Int32s("tokenizer.ggml.token_type", kinds...).
		Strings("tokenizer.ggml.merges").Uint32("tokenizer.ggml.eos_token_id", uint32(End)).
		Bool("tokenizer.ggml.add_bos_token", false).
		String("tokenizer.chat_template", "{% for message in messages %}{{ message['content'] }}{% endfor %}")
}

// Token types, numbered as in GGUF.
const (
	normal      = 1
	control     = 3
	userDefined = 4
)

// entry is a token as the file holds it: byte tokens in the byte alphabet of GPT-2, the others as they stand.
func entry(id int32) (string, int32) {
	piece := Piece(id)
	if _, ok := Owner(id); ok {
		return piece, userDefined
	}
	switch {
	case id == End:
		return piece, control
	case id == A:
		return piece, normal
	case piece == " ":
		return "Ġ", normal
	}
	return string([]rune{rune(piece[0])}), normal // the bytes used here stand for themselves
}
