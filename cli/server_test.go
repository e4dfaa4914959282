package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("leasehold.dev/cli/local.spawnLoop"),
		goleak.IgnoreTopFunction("os/signal.loop"),
		goleak.IgnoreTopFunction("os/signal.signal_recv"))
}

// chunk is one event of an answer; finish may be empty.
func chunk(text, finish string) string {
	reason := "null"
	if finish != "" {
		reason = fmt.Sprintf("%q", finish)
	}
	return fmt.Sprintf(`data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":%q},"finish_reason":%s}]}`+"\n\n", text, reason)
}

const done = "data: [DONE]\n\n"

// router is a server that speaks OpenAI's API; answer writes the events of a stream.
func router(t *testing.T, answer func(w http.ResponseWriter, r *http.Request)) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer good" {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"error":{"message":"Incorrect API key provided.","type":"authentication_error","code":"invalid_api_key","param":null}}`)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"object":"list","data":[{"id":"small","object":"model","context_length":8192},{"id":"a-larger-one","object":"model","context_length":32768}]}`)
	})
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		answer(w, r)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		s.Close()
	})
	return s.URL
}

// events answers every request with the same events.
func events(all ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Join(all, "")) }
}

// run is one command line with its input, as a person sees it.
func run(t *testing.T, in string, args ...string) (string, error) {
	t.Helper()
	var out strings.Builder
	err := Run(t.Context(), args, strings.NewReader(in), &out)
	return out.String(), err
}

func wantError(t *testing.T, err error, texts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", texts)
	}
	for _, s := range texts {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("error %q lacks %q", err, s)
		}
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
