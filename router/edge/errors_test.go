package edge_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"leasehold.dev/protos/errs"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/router/scripted"
)

func asError[T error](err error, to *T) bool { return errors.As(err, to) }

// object is OpenAI's error object.
type object struct {
	Error struct {
		Message string
		Type    string
		Param   *string
		Code    *string
	}
}

func str(s *string) string {
	if s == nil {
		return "null"
	}
	return *s
}

func TestErrorTable(t *testing.T) {
	ask := func(more string) string {
		return `{"model":"` + name + `","messages":[{"role":"user","content":"Hi"}]` + more + `}`
	}
	long := strings.Repeat("word ", 1200)
	refuse := func(k errs.Kind, text string) func(p *scripted.Prefill, d *scripted.Decode) {
		return func(p *scripted.Prefill, _ *scripted.Decode) {
			p.Do = func(context.Context, *meshv1.Admission) error { return errs.New(k, "%s", text) }
		}
	}
	for _, c := range []struct {
		why                string
		method, path, body string
		key                string
		set                func(*scripted.Prefill, *scripted.Decode)
		status             int
		typ, param, code   string
		says               []string
		retryAfter         bool
	}{
		{"over the limit", "POST", "chat", ask(`,"max_tokens":2000`), "ka", nil, 400, "invalid_request_error", "max_tokens", "context_length_exceeded", []string{"2000", "900"}, false},
		{"a prompt over the limit", "POST", "chat", `{"model":"` + name + `","messages":[{"role":"user","content":"` + long + `"}]}`, "ka", nil, 400, "invalid_request_error", "messages", "context_length_exceeded", []string{"900"}, false},
		{"a plain prompt over the limit", "POST", "completions", `{"model":"` + name + `","prompt":"` + long + `"}`, "ka", nil, 400, "invalid_request_error", "max_tokens", "context_length_exceeded", []string{"1201", "16", "900"}, false},
		{"wrong key", "POST", "chat", ask(""), "kx", nil, 401, "authentication_error", "null", "invalid_api_key", nil, false},
		{"no key", "POST", "chat", ask(""), "", nil, 401, "authentication_error", "null", "invalid_api_key", nil, false},
		{"wrong key for models", "GET", "models", "", "kx", nil, 401, "authentication_error", "null", "invalid_api_key", nil, false},
		{"unknown model", "POST", "chat", strings.Replace(ask(""), name, "gpt-9", 1), "ka", nil, 404, "invalid_request_error", "model", "model_not_found", []string{"gpt-9"}, false},
		{"malformed JSON", "POST", "chat", `{"model":`, "ka", nil, 400, "invalid_request_error", "model", "invalid_value", nil, false},
		{"no object", "POST", "chat", `[]`, "ka", nil, 400, "invalid_request_error", "null", "null", nil, false},
		{"no body", "POST", "chat", ``, "ka", nil, 400, "invalid_request_error", "null", "null", nil, false},
		{"no UTF-8", "POST", "chat", "{\"model\":\"\xff\"}", "ka", nil, 400, "invalid_request_error", "null", "null", []string{"UTF-8"}, false},
		{"half a surrogate pair", "POST", "chat", ask(`,"user":"\ud800"`), "ka", nil, 400, "invalid_request_error", "null", "null", nil, false},
		{"a body of 9 MiB", "POST", "chat", ask(`,"user":"` + strings.Repeat("x", 9<<20) + `"`), "ka", nil, 413, "invalid_request_error", "null", "request_too_large", []string{"8388608"}, false},
		{"an unsupported field", "POST", "chat", ask(`,"tools":[]`), "ka", nil, 400, "invalid_request_error", "tools", "unsupported_parameter", nil, false},
		{"an unknown field", "POST", "chat", ask(`,"lease_id":"x"`), "ka", nil, 400, "invalid_request_error", "lease_id", "unknown_parameter", nil, false},
		{"a wrong type", "POST", "chat", ask(`,"max_tokens":"9"`), "ka", nil, 400, "invalid_request_error", "max_tokens", "invalid_value", nil, false},
		{"out of range", "POST", "chat", ask(`,"temperature":2.5`), "ka", nil, 400, "invalid_request_error", "temperature", "invalid_value", []string{"2", "2.5"}, false},
		{"unknown path", "POST", "embeddings", `{}`, "ka", nil, 404, "invalid_request_error", "null", "null", nil, false},
		{"wrong method", "GET", "chat", "", "ka", nil, 405, "invalid_request_error", "null", "null", nil, false},
		{"full pool", "POST", "chat", ask(""), "ka", refuse(errs.Exhausted, "0 of 100 pages are free"), 429, "rate_limit_error", "null", "rate_limit_exceeded", nil, true},
		{"lost worker, no other pair", "POST", "chat", ask(""), "ka", refuse(errs.Unavailable, "10.0.0.7 is away"), 503, "server_error", "null", "service_unavailable", nil, true},
		{"failed check", "POST", "chat", ask(""), "ka", refuse(errs.Corrupt, "page 7 at 10.0.0.7"), 500, "server_error", "null", "null", []string{"Request id"}, false},
		{"bug", "POST", "chat", ask(""), "ka", refuse(errs.Internal, "nil at 10.0.0.7"), 500, "server_error", "null", "null", []string{"Request id"}, false},
		{"verdicts differ", "POST", "chat", ask(""), "ka", func(p *scripted.Prefill, _ *scripted.Decode) {
			p.Twist = func(v *meshv1.PrefillVerdict) { v.Rows-- }
		}, 500, "server_error", "null", "null", []string{"Request id"}, false},
		{"a unary answer that breaks off", "POST", "chat", ask(""), "ka", func(_ *scripted.Prefill, d *scripted.Decode) {
			d.Step = func(_ context.Context, _ *meshv1.Admission, i int) error {
				if i == 2 {
					return errs.New(errs.Unavailable, "gone")
				}
				return nil
			}
		}, 503, "server_error", "null", "service_unavailable", nil, true},
	} {
		t.Run(c.why, func(t *testing.T) {
			w := newWorld(t)
			p, d := w.pair()
			if c.set != nil {
				c.set(p, d)
			}
			path := "/v1/" + strings.Replace(c.path, "chat", "chat/completions", 1)
			res, body := w.send(c.method, path, c.body, "Authorization: Bearer "+c.key)
			var o object
			if err := json.Unmarshal([]byte(body), &o); err != nil {
				t.Fatalf("%v in %q", err, body)
			}
			e := o.Error
			if res.StatusCode != c.status || e.Type != c.typ || str(e.Param) != c.param || str(e.Code) != c.code {
				t.Errorf("%d type %q param %q code %q, want %d %q %q %q; message %q", res.StatusCode, e.Type, str(e.Param), str(e.Code), c.status, c.typ, c.param, c.code, e.Message)
			}
			for _, s := range c.says {
				if !strings.Contains(e.Message, s) {
					t.Errorf("message %q lacks %q", e.Message, s)
				}
			}
			if strings.Contains(body, "10.0.0.7") {
				t.Errorf("an address inside of the mesh came out: %s", body)
			}
			if (res.Header.Get("Retry-After") != "") != c.retryAfter {
				t.Errorf("Retry-After %q, want one: %v", res.Header.Get("Retry-After"), c.retryAfter)
			}
			if res.Header.Get("X-Request-Id") == "" || res.Header.Get("Content-Type") != "application/json" {
				t.Errorf("headers %v", res.Header)
			}
			if c.set == nil && (p.Calls.Load() != 0 || d.Calls.Load() != 0) {
				t.Error("a worker was asked")
			}
		})
	}
}

func TestNoPairIsReady(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{"/v1/models", "/v1/chat/completions"} {
		method, body := "GET", ""
		if path != "/v1/models" {
			method, body = "POST", `{"model":"`+name+`","messages":[{"role":"user","content":"Hi"}]}`
		}
		res, got := w.send(method, path, body, "Authorization: Bearer ka")
		if res.StatusCode != 503 || res.Header.Get("Retry-After") == "" || !strings.Contains(got, "service_unavailable") {
			t.Errorf("%s: %d %q %s", path, res.StatusCode, res.Header.Get("Retry-After"), got)
		}
	}
}

func TestATenantsOwnLimit(t *testing.T) {
	w := newWorld(t)
	_, d := w.pair()
	entered, leave := make(chan struct{}), make(chan struct{})
	d.Before = func(_ context.Context, a *meshv1.Admission) error {
		if a.Tenant == "bolt" {
			close(entered)
			<-leave
		}
		return nil
	}
	body := `{"model":"` + name + `","messages":[{"role":"user","content":"Hi"}]}`
	first := make(chan int, 1)
	go func() {
		res, _ := w.send("POST", "/v1/chat/completions", body, "Authorization: Bearer kb")
		first <- res.StatusCode
	}()
	<-entered
	if res, got := w.send("POST", "/v1/chat/completions", body, "Authorization: Bearer kb"); res.StatusCode != 429 || res.Header.Get("Retry-After") == "" {
		t.Errorf("the second at once: %d %s, want 429 with Retry-After", res.StatusCode, got)
	}
	if res, got := w.post("/v1/chat/completions", body); res.StatusCode != 200 {
		t.Errorf("another tenant: %d %s, want 200", res.StatusCode, got)
	}
	close(leave)
	if s := <-first; s != 200 {
		t.Errorf("the first: %d, want 200", s)
	}
}

// What a tenant sends beside key and body is never used, and its text is in no log and no record.
func TestTenantsHeadersAndTextGoNowhere(t *testing.T) {
	w := newWorld(t)
	_, d := w.pair()
	var seen *meshv1.Admission
	d.Before = func(_ context.Context, a *meshv1.Admission) error { seen = a; return nil }
	const secret = "xylophone-secret"
	res, _ := w.send("POST", "/v1/chat/completions?tenant=bolt&prefill=evil", `{"model":"`+name+`","messages":[{"role":"user","content":"`+secret+`"}],"user":"`+secret+`","metadata":{"tenant":"bolt"}}`,
		"Authorization: Bearer ka", "X-Tenant: bolt", "X-Request-Id: mine", "Grpc-Metadata-Tenant: bolt", "Grpc-Metadata-Authorization: Bearer kb",
		"Grpc-Timeout: 1n", "X-Leasehold-Route: unsplit", "X-Cache-Salt: "+secret, "X-Forwarded-For: 10.0.0.7")
	if res.StatusCode != 200 || seen.GetTenant() != "acme" {
		t.Fatalf("%d for tenant %q, want 200 for acme", res.StatusCode, seen.GetTenant())
	}
	if id := res.Header.Get("X-Request-Id"); id == "mine" || len(res.Header.Values("X-Request-Id")) != 1 {
		t.Errorf("x-request-id %q", id)
	}
	records, err := json.Marshal(w.records.Last(10))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(w.log.String(), "xylophone") || strings.Contains(string(records), "xylophone") {
		t.Error("the tenant's text is in the log or the record")
	}
}

func TestTwoKeysInOneRequestAreNone(t *testing.T) {
	w := newWorld(t)
	w.pair()
	res, _ := w.send("GET", "/v1/models", "", "Authorization: Bearer ka", "Authorization: Bearer kb")
	if res.StatusCode != 401 {
		t.Errorf("%d, want 401", res.StatusCode)
	}
}

func TestHealthRoutesAreOpenAndDebugIsNot(t *testing.T) {
	w := newWorld(t)
	for _, p := range []string{"/healthz", "/readyz", "/metrics"} {
		if res, body := w.send("GET", p, ""); res.StatusCode != 200 || body != "admin "+p {
			t.Errorf("%s: %d %q", p, res.StatusCode, body)
		}
	}
	for _, p := range []string{"/debug/requests", "/", "/v1", "/v1/models/../../debug/requests"} {
		if res, _ := w.send("GET", p, "", "Authorization: Bearer ka"); res.StatusCode < 300 {
			t.Errorf("%s: %d on the public listener", p, res.StatusCode)
		}
	}
}
