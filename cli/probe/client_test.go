package probe_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"leasehold.dev/cli/probe"
	"leasehold.dev/model/canary"
	"leasehold.dev/protos/errs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server answers completions with what it is told, and keeps the last request.
type server struct {
	*httptest.Server
	status int
	body   string
	got    struct {
		Model, Prompt, Pair string
		Max                 int `json:"max_tokens"`
		Temperature         *float64
	}
}

func newServer(t *testing.T) (*server, *probe.Client) {
	s := &server{status: 200}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer kc" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if err := json.NewDecoder(r.Body).Decode(&s.got); err != nil {
			t.Error(err)
		}
		s.got.Pair = r.Header.Get("X-Leasehold-Pair")
		w.Header().Set("X-Leasehold-Pair", s.got.Pair)
		w.Header().Set("X-Leasehold-Route", "split:grpc")
		w.WriteHeader(s.status)
		fmt.Fprint(w, s.body)
	})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"data":[{"id":"canary","context_length":8192},{"id":"other","context_length":100}]}`)
	})
	s.Server = httptest.NewServer(mux)
	transport := &http.Transport{}
	t.Cleanup(func() { transport.CloseIdleConnections(); s.Close() })
	return s, &probe.Client{URL: s.URL, Key: "kc", HTTP: &http.Client{Transport: transport, Timeout: 10 * time.Second}}
}

func TestAsk(t *testing.T) {
	s, c := newServer(t)
	c.Model = "canary"
	e, err := canary.New(4, 300, 1)
	if err != nil {
		t.Fatal(err)
	}
	s.body = fmt.Sprintf(`{"choices":[{"text":%q}],"usage":{"prompt_tokens":300,"completion_tokens":24}}`, canary.Text(e.Want))
	a := c.Ask(t.Context(), e, "p/d")
	if r := probe.Judge(probe.Check{Tokens: 300, Want: probe.Echo}, e, "p/d", a); !r.OK || a.Took <= 0 {
		t.Errorf("%+v after %v", r, a.Took)
	}
	if s.got.Model != "canary" || s.got.Prompt != canary.Text(e.Tokens) || s.got.Pair != "p/d" || s.got.Max != canary.Answer || s.got.Temperature == nil || *s.got.Temperature != 0 {
		t.Errorf("the router got model %q, %d bytes, pair %q, %d tokens, temperature %v", s.got.Model, len(s.got.Prompt), s.got.Pair, s.got.Max, s.got.Temperature)
	}
	s.status, s.body = 400, `{"error":{"message":"it has 300","code":"context_length_exceeded"}}`
	if a := c.Ask(t.Context(), e, "p/d"); a.Err != nil || a.Status != 400 || a.Code != "context_length_exceeded" || a.Message != "it has 300" {
		t.Errorf("a refusal: %+v", a)
	}
	s.body = "<html>"
	if a := c.Ask(t.Context(), e, "p/d"); a.Err == nil || !strings.Contains(a.Err.Error(), "400") {
		t.Errorf("no JSON: %+v", a)
	}
	s.Close()
	if a := c.Ask(t.Context(), e, "p/d"); a.Err == nil {
		t.Errorf("nobody there: %+v", a)
	}
}

func TestLimit(t *testing.T) {
	_, c := newServer(t)
	if n, err := c.Limit(t.Context()); n != 8192 || err != nil || c.Model != "canary" {
		t.Errorf("the first model: %d of %q, %v", n, c.Model, err)
	}
	c.Model = "other"
	if n, err := c.Limit(t.Context()); n != 100 || err != nil {
		t.Errorf("another model: %d, %v", n, err)
	}
	c.Model = "none"
	if _, err := c.Limit(t.Context()); errs.KindOf(err) != errs.NotFound {
		t.Errorf("a model that is not served: %v", err)
	}
}
