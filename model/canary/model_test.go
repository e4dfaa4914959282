package canary_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"leasehold.dev/model"
	"leasehold.dev/model/canary"
	"leasehold.dev/model/chat"
	"leasehold.dev/model/gguf"
)

func load(t *testing.T, context uint32) *model.Model {
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

func TestTheFileIsAModelOfAnyContext(t *testing.T) {
	for _, context := range []uint32{canary.MinPrompt + canary.Answer, 4096, 1 << 20, 1<<22 + 1} {
		c := load(t, context).Config
		if c.ContextLength != context || c.Layers != 2 || c.Heads != 1 || c.KVHeads != 1 || c.HeadDim != 64 || c.RopeBase != 1e20 || c.Vocab != canary.Vocabulary {
			t.Errorf("context %d: config is %+v", context, c)
		}
	}
	if _, err := canary.File(canary.MinPrompt); err == nil {
		t.Error("a context without room for an answer was written")
	}
	a, _ := canary.File(4096)
	b, _ := canary.File(4096)
	if !bytes.Equal(a, b) {
		t.Error("one context gave two files")
	}
}

// The rows that are read together must have one norm, or RMSNorm would make tokens of unlike strength.
func TestEveryEmbeddingHasOneNorm(t *testing.T) {
	m := load(t, 4096)
	w, ok := m.File.Tensor("token_embd.weight")
	if !ok || w.Type != gguf.Q8_0 {
		t.Fatalf("the embedding is %+v", w)
	}
	rowBytes := len(w.Data) / canary.Vocabulary
	for id := range canary.Vocabulary {
		var nonzero int
		for block := range rowBytes / 34 {
			for _, q := range w.Data[id*rowBytes+34*block+2:][:32] {
				if q != 0 {
					nonzero++
				}
				if v := int8(q); v != 0 && v != 127 && v != -127 {
					t.Fatalf("token %d has an element of %d/127", id, v)
				}
			}
		}
		if nonzero != 81 {
			t.Fatalf("token %d has %d elements, want 81", id, nonzero)
		}
	}
}

func TestWordsAndIDsMapOneToOne(t *testing.T) {
	m := load(t, 4096)
	if v := m.Tokenizer.Vocab(); v != canary.Vocabulary {
		t.Fatalf("%d tokens, want %d", v, canary.Vocabulary)
	}
	for tenant := range canary.Tenants {
		e, err := canary.New(tenant, 300, 9)
		if err != nil {
			t.Fatal(err)
		}
		text := canary.Text(e.Tokens)
		for _, special := range []bool{false, true} {
			if got := m.Tokenizer.Encode(text, special); !slices.Equal(got, e.Tokens) {
				t.Errorf("tenant %d, special %v: the tokenizer gives other ids", tenant, special)
			}
		}
		if got := string(m.Tokenizer.Decode(e.Tokens)); got != text {
			t.Errorf("tenant %d: the tokenizer gives other words", tenant)
		}
		if got := canary.Parse(text); !slices.Equal(got, e.Tokens) {
			t.Errorf("tenant %d: Parse gives other ids", tenant)
		}
	}
	for id := range int32(canary.Vocabulary) {
		if got := string(m.Tokenizer.Piece(id)); got != canary.Piece(id) {
			t.Errorf("token %d is %q in the file, %q here", id, got, canary.Piece(id))
		}
	}
	if canary.Piece(-1) != "" || canary.Piece(canary.Vocabulary) != "" {
		t.Error("an id outside of the vocabulary has a piece")
	}
	if !m.Tokenizer.IsEOG(canary.End) || m.Tokenizer.IsEOG(canary.A) {
		t.Error("End ends nothing, or A does")
	}
}

// A chat of one message is the message, so that the echo can be asked for over either endpoint.
func TestTheTemplateAddsNothing(t *testing.T) {
	m := load(t, 4096)
	e, err := canary.New(2, 100, 1)
	if err != nil {
		t.Fatal(err)
	}
	text := canary.Text(e.Tokens)
	got, err := m.Template.Render([]chat.Message{{Role: "user", Content: text}}, true)
	if err != nil || got != text {
		t.Errorf("the rendered chat has %d bytes, want %d: %v", len(got), len(text), err)
	}
}

func TestParseOfWhatIsNoPrompt(t *testing.T) {
	u := canary.Unknown
	for _, c := range []struct {
		text string
		want []int32
	}{
		{"", nil},
		{"A", []int32{canary.A}},
		{"a00A", []int32{32, canary.A}},
		{"p29", []int32{511}},
		{"a30", []int32{u, u, u}},
		{"q00", []int32{u, u, u}},
		{"a0", []int32{u, u}},
		{"a0xA", []int32{u, u, u, canary.A}},
		{"\xff", []int32{u}},
	} {
		if got := canary.Parse(c.text); !slices.Equal(got, c.want) {
			t.Errorf("Parse(%q) = %v, want %v", c.text, got, c.want)
		}
	}
}
