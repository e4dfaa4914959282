package model_test

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"leasehold.dev/model"
	"leasehold.dev/model/chat"
	"leasehold.dev/model/gguf"
	"leasehold.dev/model/gguf/gguftest"
)

func TestServedName(t *testing.T) {
	for path, want := range map[string]string{
		"/x/SmolLM2-135M-Instruct.Q4_1.gguf":  "smollm2-135m-instruct",
		"SmolLM2-135M-Instruct-Q4_K_M.gguf":   "smollm2-135m-instruct",
		"model.IQ2_XXS.gguf":                  "model",
		"Llama-3.2-1B-Instruct-BF16.gguf":     "llama-3.2-1b-instruct",
		"canary-f32.gguf":                     "canary",
		"canary.gguf":                         "canary",
		"Qwen2.5-7B":                          "qwen2.5-7b",
		"a.b/c-Q8_0.GGUF":                     "c",
		"q4.gguf":                             "q4",
		"deepseek-r1-qwen2-q8_0-preview.gguf": "deepseek-r1-qwen2-q8_0-preview",
	} {
		if got := model.ServedName(path); got != want {
			t.Errorf("ServedName(%q) = %q, want %q", path, got, want)
		}
	}
}

// alphabet are the 256 tokens of bytes, as GPT-2 writes them.
func alphabet() []string {
	var tokens []string
	next := rune(0x100)
	for r := range rune(256) {
		if !(r >= '!' && r <= '~' || r >= 0xA1 && r <= 0xAC || r >= 0xAE) {
			tokens, next = append(tokens, string(next)), next+1
			continue
		}
		tokens = append(tokens, string(r))
	}
	return tokens
}

// withTokenizer adds a tokenizer of n tokens: one for each byte, then control tokens.
func withTokenizer(b *gguftest.Builder, n int) *gguftest.Builder {
	tokens, types := alphabet(), make([]int32, 0, n)
	for len(tokens) < n {
		tokens = append(tokens, "<|"+string(rune('a'+len(tokens)-256))+"|>")
	}
	for id := range n {
		if id < 256 {
			types = append(types, 1)
		} else {
			types = append(types, 3)
		}
	}
	return b.String("tokenizer.ggml.model", "gpt2").String("tokenizer.ggml.pre", "smollm").
		Strings("tokenizer.ggml.tokens", tokens...).Int32s("tokenizer.ggml.token_type", types...).
		Strings("tokenizer.ggml.merges").Uint32("tokenizer.ggml.bos_token_id", 256).Uint32("tokenizer.ggml.eos_token_id", 257)
}

func write(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoadASmallModel(t *testing.T) {
	data := withTokenizer(tiny().builder(), 300).String("tokenizer.chat_template", "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}").Bytes()
	m, err := model.Load(write(t, "Tiny-F32.gguf", data))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.Name != "tiny" || m.Config.Vocab != 300 || m.Revision != sha256.Sum256(data) {
		t.Errorf("Load = %q, %+v, revision %x", m.Name, m.Config, m.Revision)
	}
	prompt, err := m.Template.Render([]chat.Message{{Role: "user", Content: "hi"}}, true)
	if err != nil || prompt != "<|a|>hi<|b|>" {
		t.Errorf("Render = %q, %v, want the file's own start and end tokens around it", prompt, err)
	}
}

func TestLoadWithoutATemplate(t *testing.T) {
	m, err := model.Load(write(t, "x.gguf", withTokenizer(tiny().builder(), 300).Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.Template != nil {
		t.Error("a template out of nothing")
	}
}

func TestLoadRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		data []byte
		want error
	}{
		{"a file that is no model", []byte("not a model, but long enough for a header"), gguf.ErrFormat},
		{"a model of another architecture", (&gguftest.Builder{}).String("general.architecture", "mamba").Bytes(), gguf.ErrUnsupported},
		{"a model without a tokenizer", tiny().builder().Bytes(), gguf.ErrUnsupported},
		{"fewer tokens than the embedding has rows", withTokenizer(tiny().builder(), 299).Bytes(), gguf.ErrFormat},
		{"more tokens than the embedding has rows", withTokenizer(tiny().builder(), 301).Bytes(), gguf.ErrFormat},
		{"a template that is wrong", withTokenizer(tiny().builder(), 300).String("tokenizer.chat_template", "{% if").Bytes(), chat.ErrTemplate},
	} {
		if _, err := model.Load(write(t, "x.gguf", c.data)); !errors.Is(err, c.want) {
			t.Errorf("%s: Load error = %v, want %v", c.name, err, c.want)
		}
	}
	if _, err := model.Load(filepath.Join(t.TempDir(), "absent")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

func tokenizerRevision(t *testing.T, b *gguftest.Builder) [32]byte {
	t.Helper()
	f, err := gguf.Parse(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return model.TokenizerRevision(f)
}

func TestTokenizerRevisionIsTheFramedHash(t *testing.T) {
	b := (&gguftest.Builder{}).String("tokenizer.z", "v").String("general.name", "x").Uint32("tokenizer.a", 7)
	u64 := func(v uint64) string { return string(binary.LittleEndian.AppendUint64(nil, v)) }
	u32 := func(v uint32) string { return string(binary.LittleEndian.AppendUint32(nil, v)) }
	want := sha256.Sum256([]byte("leasehold/tokenizer/v1" +
		u64(11) + "tokenizer.a" + u32(4) + u64(4) + u32(7) +
		u64(11) + "tokenizer.z" + u32(8) + u64(9) + u64(1) + "v"))
	if got := tokenizerRevision(t, b); got != want {
		t.Errorf("TokenizerRevision = %x, want %x", got, want)
	}
}

func TestTokenizerRevisionChangesWithTheTokenizerOnly(t *testing.T) {
	base := func() *gguftest.Builder { return withTokenizer(&gguftest.Builder{}, 258) }
	same := map[string]*gguftest.Builder{
		"again":           base(),
		"another name":    base().String("general.name", "x"),
		"weights as well": base().Zeros("w", gguf.F32, 4),
	}
	other := map[string]*gguftest.Builder{
		"one token more":   withTokenizer(&gguftest.Builder{}, 259),
		"a template":       base().String("tokenizer.chat_template", "x"),
		"another template": base().String("tokenizer.chat_template", "y"),
		"a rule":           base().Bool("tokenizer.ggml.add_bos_token", true),
		"two texts whose border moved": base().String("tokenizer.a", "xy").
			String("tokenizer.b", ""),
		"the border elsewhere": base().String("tokenizer.a", "x").String("tokenizer.b", "y"),
	}
	want := tokenizerRevision(t, base())
	for name, b := range same {
		if got := tokenizerRevision(t, b); got != want {
			t.Errorf("%s: another revision", name)
		}
	}
	seen := map[[32]byte]string{want: "the base"}
	for name, b := range other {
		got := tokenizerRevision(t, b)
		if twin, twice := seen[got]; twice {
			t.Errorf("%s: the same revision as %s", name, twin)
		}
		seen[got] = name
	}
}
