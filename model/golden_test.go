package model_test

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"leasehold.dev/model"
	"leasehold.dev/model/chat"
	"leasehold.dev/model/modelfile"
)

// golden is what llama.cpp says about the test model; see testdata/smollm2.json.
type golden struct {
	SHA256  string `json:"model_sha256"`
	Vocab   int    `json:"vocab"`
	Prompts []struct {
		Name     string
		Messages []chat.Message
		Prompt   string
		IDs      []int32 `json:"prompt_ids"`
		Default  run
		KVF32    run
	}
	Cases []struct {
		Text      string
		IDs       []int32
		NoSpecial []int32 `json:"ids_no_special"`
	} `json:"tokenizer_cases"`
}

type run struct {
	IDs   []int32
	EOGAt *int `json:"eog_at"`
	Text  string
	All   string `json:"text_48"`
}

func readGolden(t testing.TB) golden {
	t.Helper()
	data, err := os.ReadFile("testdata/smollm2.json")
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	if len(g.Prompts) != 5 || len(g.Cases) != 25 {
		t.Fatalf("golden file has %d prompts and %d cases, want 5 and 25", len(g.Prompts), len(g.Cases))
	}
	return g
}

func load(t testing.TB) *model.Model {
	t.Helper()
	m, err := model.Load(modelfile.Path(t))
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return m
}

func TestTokenizerAgreesWithLlamaCpp(t *testing.T) {
	m, g := load(t), readGolden(t)
	if got := m.Tokenizer.Vocab(); got != g.Vocab {
		t.Errorf("Vocab() = %d, want %d", got, g.Vocab)
	}
	for _, c := range g.Cases {
		if diff := cmp.Diff(c.IDs, m.Tokenizer.Encode(c.Text, true)); diff != "" {
			t.Errorf("Encode(%q, true) (-llama.cpp +ours):\n%s", c.Text, diff)
		}
		ids := m.Tokenizer.Encode(c.Text, false)
		if diff := cmp.Diff(c.NoSpecial, ids); diff != "" {
			t.Errorf("Encode(%q, false) (-llama.cpp +ours):\n%s", c.Text, diff)
		}
		if got := string(m.Tokenizer.Decode(ids)); got != c.Text {
			t.Errorf("Decode(Encode(%q)) = %q", c.Text, got)
		}
	}
}

func TestPromptsAgreeWithLlamaCpp(t *testing.T) {
	m, g := load(t), readGolden(t)
	for _, p := range g.Prompts {
		prompt, err := m.Template.Render(p.Messages, true)
		if err != nil || prompt != p.Prompt {
			t.Errorf("%s: Render = %q, %v, want %q", p.Name, prompt, err, p.Prompt)
			continue
		}
		ids := m.Tokenizer.Encode(prompt, true)
		if diff := cmp.Diff(p.IDs, ids); diff != "" {
			t.Errorf("%s: ids (-llama.cpp +ours):\n%s", p.Name, diff)
		}
		if got := string(m.Tokenizer.Decode(p.IDs)); got != p.Prompt {
			t.Errorf("%s: Decode(ids) = %q, want the prompt", p.Name, got)
		}
	}
}

func TestAnswersStreamAsLlamaCppWritesThem(t *testing.T) {
	m, g := load(t), readGolden(t)
	for _, p := range g.Prompts {
		for _, r := range []run{p.Default, p.KVF32} {
			text, eog := "", -1
			s := m.Tokenizer.NewStream()
			for i, id := range r.IDs {
				if m.Tokenizer.IsEOG(id) {
					eog = i
					break
				}
				text += s.Push(id)
			}
			text += s.Flush()
			if text != r.Text {
				t.Errorf("%s: streamed %q, want %q", p.Name, text, r.Text)
			}
			if want := r.EOGAt; (want == nil) != (eog < 0) || want != nil && *want != eog {
				t.Errorf("%s: first end of generation at %d, want %v", p.Name, eog, want)
			}
		}
	}
}

func TestRevisionIsTheFilesSHA256(t *testing.T) {
	m, g := load(t), readGolden(t)
	if got := hex.EncodeToString(m.Revision[:]); got != g.SHA256 {
		t.Errorf("Revision = %s, want %s", got, g.SHA256)
	}
}
