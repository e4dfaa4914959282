package edge_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"leasehold.dev/protos/errs"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"

	"context"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// what differs between two runs
var variable = []struct {
	re *regexp.Regexp
	to string
}{
	{regexp.MustCompile(`(chatcmpl|cmpl)-[0-9a-f]{32}`), "$1-ID"},
	{regexp.MustCompile(`"leasehold_receipt":"ey[-_.0-9A-Za-z]{800}[-_.0-9A-Za-z]+"`), `"leasehold_receipt":"JWS"`},
	{regexp.MustCompile(`"created":1[0-9]{9}`), `"created":1700000000`},
	{regexp.MustCompile(`Request id: [0-9a-f]{32}`), "Request id: ID"},
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	for _, v := range variable {
		got = v.re.ReplaceAllString(got, v.to)
	}
	file = filepath.Join("testdata", file)
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s differs (-want +got):\n%s", file, d)
	}
}

// words is an answer with what is hard to write: a quote, HTML, a line end, a character beyond 16 bits.
var words = []string{"a \"b\"", " <c&d>", "\n", "\U0001F600"}

func withLogprobs(_ *decodev1.Sampling, i int, text string) *decodev1.Tokens {
	top := []*decodev1.TopLogprob{
		{Id: int32(100 + i), Logprob: -0.25, TokenBytes: []byte(text)},
		{Id: int32(200 + i), Logprob: -1.5, TokenBytes: []byte{0xF0, 0x9F}}, // the start of a character
	}
	return &decodev1.Tokens{Text: text, Tokens: []*decodev1.TokenInfo{{Id: int32(100 + i), Logprob: -0.25, TokenBytes: []byte(text), Top: top}}}
}

func TestExactBytes(t *testing.T) {
	ask := `"model":"` + name + `","messages":[{"role":"user","content":"Hi"}]`
	text := `"model":"` + name + `","prompt":"Once upon a time"`
	for _, c := range []struct {
		file, path, body string
		set              func(*decodeScript)
	}{
		{"chat.json", "/v1/chat/completions", `{` + ask + `}`, nil},
		{"chat.sse", "/v1/chat/completions", `{` + ask + `,"stream":true}`, nil},
		{"chat-usage.sse", "/v1/chat/completions", `{` + ask + `,"stream":true,"stream_options":{"include_usage":true}}`, nil},
		{"chat-length.sse", "/v1/chat/completions", `{` + ask + `,"stream":true,"max_tokens":4}`, func(d *decodeScript) { d.Reason = decodev1.FinishReason_FINISH_REASON_LENGTH }},
		{"chat-empty.sse", "/v1/chat/completions", `{` + ask + `,"stream":true}`, func(d *decodeScript) { d.Text = []string{""} }},
		{"chat-empty.json", "/v1/chat/completions", `{` + ask + `}`, func(d *decodeScript) { d.Text = []string{""} }},
		{"chat-logprobs.json", "/v1/chat/completions", `{` + ask + `,"logprobs":true,"top_logprobs":2}`, func(d *decodeScript) { d.Tokens = withLogprobs }},
		{"chat-logprobs.sse", "/v1/chat/completions", `{` + ask + `,"logprobs":true,"top_logprobs":2,"stream":true}`, func(d *decodeScript) { d.Tokens = withLogprobs }},
		{"chat-fails-late.sse", "/v1/chat/completions", `{` + ask + `,"stream":true}`, func(d *decodeScript) {
			d.Step = func(_ context.Context, _ *meshv1.Admission, i int) error {
				if i == 2 {
					return errs.New(errs.Unavailable, "the worker at 10.0.0.7 went away")
				}
				return nil
			}
		}},
		{"chat-fails-check.sse", "/v1/chat/completions", `{` + ask + `,"stream":true}`, func(d *decodeScript) {
			d.Step = func(_ context.Context, _ *meshv1.Admission, i int) error {
				if i == 4 {
					return errs.New(errs.Corrupt, "page 7 of tenant acme")
				}
				return nil
			}
		}},
		{"text.json", "/v1/completions", `{` + text + `}`, nil},
		{"text.sse", "/v1/completions", `{` + text + `,"stream":true}`, nil},
		{"text-usage.sse", "/v1/completions", `{` + text + `,"stream":true,"stream_options":{"include_usage":true}}`, nil},
		{"text-logprobs.json", "/v1/completions", `{` + text + `,"logprobs":2}`, func(d *decodeScript) { d.Tokens = withLogprobs }},
	} {
		t.Run(c.file, func(t *testing.T) {
			w := newWorld(t)
			_, d := w.pair()
			d.Text = words
			if c.set != nil {
				c.set(d)
			}
			res, body := w.post(c.path, c.body)
			if want := map[bool]string{true: "text/event-stream; charset=utf-8", false: "application/json"}[strings.HasSuffix(c.file, "sse")]; res.Header.Get("Content-Type") != want || res.StatusCode != 200 {
				t.Errorf("%d %s, want 200 %s", res.StatusCode, res.Header.Get("Content-Type"), want)
			}
			golden(t, c.file, body)
		})
	}
}

func TestModelsBytes(t *testing.T) {
	w := newWorld(t)
	w.pair()
	_, body := w.send("GET", "/v1/models", "", "Authorization: Bearer ka")
	golden(t, "models.json", body)
}

func TestAStreamIsNotBuffered(t *testing.T) {
	w := newWorld(t)
	_, d := w.pair()
	more := make(chan struct{})
	d.Step = func(ctx context.Context, _ *meshv1.Admission, i int) error {
		if i == 1 {
			select {
			case <-more:
			case <-ctx.Done():
			}
		}
		return nil
	}
	res := w.open(t.Context(), `{"model":"`+name+`","messages":[{"role":"user","content":"Hi"}],"stream":true}`)
	defer res.Body.Close()
	var got strings.Builder
	b := make([]byte, 4096)
	for !strings.Contains(got.String(), `"content":"The"`) { // the rest waits for us
		n, err := res.Body.Read(b)
		if err != nil {
			t.Fatalf("%v after %q", err, got.String())
		}
		got.Write(b[:n])
	}
	close(more)
}
