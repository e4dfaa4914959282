package tokenizer

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"leasehold.dev/model/gguf"
	"leasehold.dev/model/gguf/gguftest"
)

// vocab is a small vocabulary: a token for each byte, so that its id is the byte, then entries, then special tokens.
type vocab struct {
	model, pre string
	tokens     []string
	types      []int32
	merges     []string
	extra      func(*gguftest.Builder)
}

// newVocab has one token for each byte and, after id 255, one for each merge ("a b" makes ab).
func newVocab(pre string, merges ...string) *vocab {
	v := &vocab{model: "gpt2", pre: pre, merges: merges, extra: func(*gguftest.Builder) {}}
	for _, r := range toRune {
		v.add(string(r), typeNormal)
	}
	for _, m := range merges {
		v.add(strings.ReplaceAll(m, " ", ""), typeNormal)
	}
	return v
}

func (v *vocab) add(token string, typ int32) *vocab {
	v.tokens, v.types = append(v.tokens, token), append(v.types, typ)
	return v
}

func (v *vocab) file(t testing.TB) *gguf.File {
	t.Helper()
	b := (&gguftest.Builder{}).String("tokenizer.ggml.model", v.model).String("tokenizer.ggml.pre", v.pre).
		Strings("tokenizer.ggml.tokens", v.tokens...).Int32s("tokenizer.ggml.token_type", v.types...).
		Strings("tokenizer.ggml.merges", v.merges...)
	v.extra(b)
	f, err := gguf.Parse(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (v *vocab) tokenizer(t testing.TB) *Tokenizer {
	t.Helper()
	tok, err := New(v.file(t))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(v *vocab)
		want   error
	}{
		{"nothing of a right vocabulary", func(*vocab) {}, nil},
		{"another kind of tokenizer", func(v *vocab) { v.model = "llama" }, gguf.ErrUnsupported},
		{"an unknown pre-tokenizer", func(v *vocab) { v.pre = "default" }, gguf.ErrUnsupported},
		{"no tokens", func(v *vocab) { v.tokens, v.types, v.merges = nil, nil, nil }, gguf.ErrFormat},
		{"fewer types than tokens", func(v *vocab) { v.types = v.types[1:] }, gguf.ErrFormat},
		{"a token outside of the alphabet", func(v *vocab) { v.add("日", typeNormal) }, gguf.ErrFormat},
		{"a token that is broken UTF-8", func(v *vocab) { v.add("\xff", typeNormal) }, gguf.ErrFormat},
		{"no token for a byte of U+FFFD", func(v *vocab) { v.tokens[0xEF] = "aa" }, gguf.ErrFormat},
		{"a merge of one part", func(v *vocab) { v.merges[0] = "ab" }, gguf.ErrFormat},
		{"a merge with an empty part", func(v *vocab) { v.merges[0] = " b" }, gguf.ErrFormat},
		{"a merge of three parts", func(v *vocab) { v.merges[0] = "a b c" }, gguf.ErrFormat},
		{"a merge of no token", func(v *vocab) { v.merges[0] = "zz b" }, gguf.ErrFormat},
		{"a merge into no token", func(v *vocab) { v.merges[0] = "b a" }, gguf.ErrFormat},
		{"an end that is no token", func(v *vocab) {
			v.extra = func(b *gguftest.Builder) { b.Uint32("tokenizer.ggml.eos_token_id", 257) }
		}, gguf.ErrFormat},
	} {
		v := newVocab("smollm", "a b")
		c.change(v)
		if _, err := New(v.file(t)); !errors.Is(err, c.want) {
			t.Errorf("%s: New error = %v, want %v", c.name, err, c.want)
		}
	}
}

func TestNewNeedsEveryKey(t *testing.T) {
	whole := (&gguftest.Builder{}).String("tokenizer.ggml.model", "gpt2").String("tokenizer.ggml.pre", "smollm")
	f, err := gguf.Parse(whole.Strings("tokenizer.ggml.tokens", newVocab("smollm").tokens...).
		Int32s("tokenizer.ggml.token_type", newVocab("smollm").types...).Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(f); !errors.Is(err, gguf.ErrFormat) {
		t.Errorf("without merges: %v, want %v", err, gguf.ErrFormat)
	}
}

func TestTheAlphabetIsOneCharacterAByte(t *testing.T) {
	for b := range 256 {
		got, ok := bytesOf(string(toRune[b]))
		if !ok || len(got) != 1 || got[0] != byte(b) {
			t.Errorf("bytesOf(%q) = %v, %v, want byte %#x", toRune[b], got, ok, b)
		}
	}
	for b, want := range map[byte]rune{'A': 'A', ' ': 'Ġ', '\n': 'Ċ', 0: 'Ā', 0xAD: 'Ń', 0xFF: 'ÿ'} {
		if toRune[b] != want {
			t.Errorf("byte %#x is written %q, want %q", b, toRune[b], want)
		}
	}
}

func TestEndsAndControls(t *testing.T) {
	v := newVocab("smollm").add("<|im_end|>", typeControl).add("<|im_start|>", typeControl).
		add("<own>", typeUserDefined).add("<|endoftext|>", typeNormal+4).add("<stop>", typeControl).add("<unk>", typeUnknown)
	v.extra = func(b *gguftest.Builder) {
		b.Uint32("tokenizer.ggml.eot_token_id", 260).Uint32("tokenizer.ggml.bos_token_id", 257).
			Bool("tokenizer.ggml.add_bos_token", true)
	}
	tok := v.tokenizer(t)
	var eog, control []int32
	for id := int32(-1); int(id) <= tok.Vocab(); id++ {
		if tok.IsEOG(id) {
			eog = append(eog, id)
		}
		if tok.IsControl(id) {
			control = append(control, id)
		}
	}
	if !slices.Equal(eog, []int32{256, 260}) {
		t.Errorf("ends are %v, want the control token with an end's text, and the one named by id", eog)
	}
	if !slices.Equal(control, []int32{256, 257, 260}) {
		t.Errorf("control tokens are %v", control)
	}
	if id, add := tok.BOS(); id != 257 || !add {
		t.Errorf("BOS() = %d, %v, want 257, true", id, add)
	}
	if id, add := newVocab("smollm").tokenizer(t).BOS(); id != -1 || add {
		t.Errorf("BOS() of a file without = %d, %v, want -1, false", id, add)
	}
}
