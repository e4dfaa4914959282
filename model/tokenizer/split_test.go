package tokenizer

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func words(split splitter, text string) []string {
	var ws []string
	for text != "" {
		n := split(text)
		ws = append(ws, text[:n])
		text = text[n:]
	}
	return ws
}

// testdata/splits.json has, for each text, the words that Python's regex module finds with each pre-tokenizer's
// expression, \s written out as Unicode's White_Space.
func TestWordsAreThoseOfTheExpression(t *testing.T) {
	data, err := os.ReadFile("testdata/splits.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Text   string
		GPT2   []string
		SmolLM []string
		Llama  []string `json:"llama-bpe"`
		Qwen2  []string
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		for name, want := range map[string][]string{
			"gpt2": c.GPT2, "smollm": c.SmolLM, "llama-bpe": c.Llama, "qwen2": c.Qwen2,
		} {
			if diff := cmp.Diff(want, words(splitters[name], c.Text)); diff != "" {
				t.Errorf("%s splits %q (-expression +ours):\n%s", name, c.Text, diff)
			}
		}
	}
}

func TestSplit(t *testing.T) {
	for _, c := range []struct{ name, pre, text, want string }{
		{"digits stand alone", "smollm", "a12", "a|1|2"},
		{"spaces before a digit stay together", "smollm", "a  1", "a|  |1"},
		{"but the last of them goes to a number in gpt2", "gpt2", "a  1", "a| | 1"},
		{"broken bytes are symbols", "smollm", "a\xffb", "a|\xff|b"},
		{"broken bytes join other symbols and their space", "gpt2", " \xff\xfe!", " \xff\xfe!"},
		{"a whole U+FFFD is a symbol", "gpt2", "a\ufffdb", "a|\ufffd|b"},
		{"a cut character at the end is a symbol", "smollm", "é\xc3", "é|\xc3"},
		{"a lone quote is a symbol", "gpt2", "'", "'"},
		{"an ending in capitals is none in gpt2", "gpt2", "I'LL", "I|'|LL"},
		{"an ending in capitals is one in llama", "llama-bpe", "I'LL", "I|'LL"},
		{"llama takes three digits", "llama-bpe", "12345", "123|45"},
		{"qwen takes one digit", "qwen2", "123", "1|2|3"},
	} {
		if got := strings.Join(words(splitters[c.pre], c.text), "|"); got != c.want {
			t.Errorf("%s: %s splits %q into %q, want %q", c.name, c.pre, c.text, got, c.want)
		}
	}
}

func TestWordsAreTheText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) + rapid.String().Draw(t, "text")
		for name, split := range splitters {
			if got := strings.Join(words(split, text), ""); got != text {
				t.Fatalf("%s loses text: %q became %q", name, text, got)
			}
		}
	})
}
