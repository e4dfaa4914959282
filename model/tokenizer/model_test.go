package tokenizer_test

import (
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"leasehold.dev/model/gguf"
	"leasehold.dev/model/modelfile"
	"leasehold.dev/model/tokenizer"
)

var smollm = sync.OnceValues(func() (*tokenizer.Tokenizer, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return tokenizer.New(f)
})

var path string

func load(t testing.TB) *tokenizer.Tokenizer {
	t.Helper()
	path = modelfile.Path(t)
	tok, err := smollm()
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func TestDecodeIsTheInverseOfEncode(t *testing.T) {
	tok := load(t)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Filter(func(s string) bool { return tok.Normalize(s) == s }).Draw(t, "text")
		for _, special := range []bool{false, true} {
			if got := string(tok.Decode(tok.Encode(text, special))); got != text {
				t.Fatalf("Decode(Encode(%q, %v)) = %q", text, special, got)
			}
		}
	})
}

func TestDecodeGivesTheNormalTextForAnyBytes(t *testing.T) {
	tok := load(t)
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		want := tok.Normalize(text)
		if got := string(tok.Decode(tok.Encode(text, true))); got != want {
			t.Fatalf("Decode(Encode(%q)) = %q, want %q", text, got, want)
		}
		if again := tok.Normalize(want); again != want {
			t.Fatalf("Normalize(%q) = %q", want, again)
		}
	})
}

func TestSmolLM2LacksFewCharacters(t *testing.T) {
	tok, lacking := load(t), ""
	for r := rune(0); r < 0x30000; r++ {
		if s := string(r); tok.Normalize(s) != s {
			lacking += s
		}
	}
	if want := "\x04\x06\x13\x14\x16\x1d"; lacking != want {
		t.Errorf("characters without tokens: %q, want %q", lacking, want)
	}
}

func TestOneTokenizerServesManyGoroutines(t *testing.T) {
	tok := load(t)
	text := strings.Repeat("Many at once: 12 naïve ☕ <|im_start|>x\n", 50)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if got := string(tok.Decode(tok.Encode(text, true))); got != text {
				t.Errorf("text changed: %q", got)
			}
		})
	}
	wg.Wait()
}

func BenchmarkEncode(b *testing.B) {
	tok := load(b)
	for _, c := range []struct{ name, text string }{
		{"prose", strings.Repeat("The lease table is a pure function; a timer never frees a page. ", 1000)},
		{"code", strings.Repeat("func (t *Table) Step(e Event) (Effects, error) {\n\treturn nil, nil\n}\n", 1000)},
		{"unicode", strings.Repeat("日本語のテキスト naïve — “quotes” 🙂 हिन्दी ", 1000)},
		{"one letter", strings.Repeat("x", 64000)},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.text)))
			for b.Loop() {
				tok.Encode(c.text, true)
			}
		})
	}
}

func BenchmarkNew(b *testing.B) {
	f, err := gguf.Open(modelfile.Path(b))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	for b.Loop() {
		if _, err := tokenizer.New(f); err != nil {
			b.Fatal(err)
		}
	}
}
