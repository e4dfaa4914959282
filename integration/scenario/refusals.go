package scenario

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"leasehold.dev/cli/local"
)

// refusal is a request that must be refused, and how.
type refusal struct {
	name   string
	path   string
	key    string // empty: the demo tenant's
	body   any
	status int
	typ    string
	code   string // empty: null or any
	param  string // empty: null or any
	text   string // regular expression that the message must match
}

const refusalPromise = 256 // 4 pages of 64

// Refusals are the requests that the edge must refuse in OpenAI's error shape, each leaving the pools untouched.
var Refusals = Scenario{"refusals", runRefusals}

func refusals(model string) []refusal {
	chat := "/v1/chat/completions"
	long := Ask{Content: Words(400), MaxTokens: 8}
	return []refusal{
		{name: "over the context", path: chat, body: long.body(model), status: 400, typ: "invalid_request_error", code: "context_length_exceeded", text: `256.*\d{3}|\d{3}.*256`},
		{name: "prompt fits, max_tokens does not", path: chat, body: Ask{Content: "hi", MaxTokens: 250}.body(model), status: 400, typ: "invalid_request_error", code: "context_length_exceeded", text: `256.*250|250.*256`},
		{name: "wrong key", path: chat, key: "lh-wrong", body: Ask{Content: "hi", MaxTokens: 4}.body(model), status: 401, typ: "invalid_request_error|authentication_error", code: "invalid_api_key", text: `.`},
		{name: "unknown model", path: chat, body: Ask{Content: "hi", MaxTokens: 4}.body("gpt-99"), status: 404, typ: "invalid_request_error", code: "model_not_found", text: `gpt-99`},
		{name: "broken JSON", path: chat, body: []byte(`{"model": "x", "messages": [`), status: 400, typ: "invalid_request_error", text: `.`},
		{name: "field of the wrong kind", path: chat, body: []byte(`{"model": "` + model + `", "messages": [{"role":"user","content":"hi"}], "temperature": "hot"}`), status: 400, typ: "invalid_request_error", text: `temperature`},
		{name: "number out of range", path: chat, body: []byte(`{"model": "` + model + `", "messages": [{"role":"user","content":"hi"}], "temperature": 3}`), status: 400, typ: "invalid_request_error", param: "temperature", text: `3`},
		{name: "field not served", path: chat, body: []byte(`{"model": "` + model + `", "messages": [{"role":"user","content":"hi"}], "tools": [{"type":"function"}]}`), status: 400, typ: "invalid_request_error", param: "tools", text: `tools`},
		{name: "no messages", path: chat, body: []byte(`{"model": "` + model + `", "messages": []}`), status: 400, typ: "invalid_request_error", param: "messages", text: `messages`},
		{name: "no prompt", path: "/v1/completions", body: []byte(`{"model": "` + model + `"}`), status: 400, typ: "invalid_request_error", param: "prompt", text: `prompt`},
	}
}

func tinyPools(c *local.Config) {
	c.Promise = refusalPromise
	c.Brokers = []local.Broker{{Name: "broker-p", Pages: 6}, {Name: "broker-d", Pages: 4}}
}

func runRefusals(ctx context.Context, s Setup) (map[string]any, error) {
	st, err := Open(ctx, s, tinyPools)
	if err != nil {
		return nil, err
	}
	defer st.Close()
	fig := map[string]any{}
	for _, r := range refusals(st.Loaded.Name) {
		key := r.key
		if key == "" {
			key = st.Key()
		}
		a, err := st.Post(ctx, r.path, key, r.body, nil)
		if err := errors.Join(err, r.check(a), st.untouched(ctx)); err != nil {
			return fig, fmt.Errorf("%s: %w", r.name, err)
		}
		fig[r.name] = r.status
	}
	status, err := fullPool(ctx, st)
	fig["full pool"] = status
	return fig, err
}

func (r refusal) check(a Answer) error {
	e := a.Err
	if e == nil {
		return fmt.Errorf("answered %+v, want status %d", a, r.status)
	}
	match := func(what, pattern, got string) error {
		ok, err := regexp.MatchString("^(?s:.*("+pattern+").*)$", got)
		if err == nil && !ok {
			err = fmt.Errorf("%s %q, want a match of %q", what, got, pattern)
		}
		return err
	}
	deref := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	err := errors.Join(match("type", r.typ, e.Type), match("message", r.text, e.Message), match("code", r.code, deref(e.Code)), match("param", r.param, deref(e.Param)))
	if e.Status != r.status {
		err = errors.Join(err, fmt.Errorf("status %d, want %d", e.Status, r.status))
	}
	return err
}

// untouched checks that no broker has a lease or a page in use at this very moment.
func (st *Stage) untouched(ctx context.Context) error {
	for _, b := range st.Brokers {
		d, err := st.Describe(ctx, b.Name)
		if err != nil {
			return err
		}
		if d.Pool.Free != d.Pool.Pages || len(d.Leases) > 0 {
			return fmt.Errorf("broker %s: %d of %d pages free, leases %v", b.Name, d.Pool.Free, d.Pool.Pages, d.Leases)
		}
	}
	return nil
}

// fullPool fills decode's pool with one stream and asks once more.
func fullPool(ctx context.Context, st *Stage) (int, error) {
	var second Answer
	seen, result := after(2, func() (err error) {
		second, err = st.Chat(ctx, Ask{Content: "hi", MaxTokens: 150}, nil)
		return err
	})
	first, err := st.Chat(ctx, Ask{Content: "Count.", MaxTokens: 180, Stream: true, Extra: map[string]any{"logit_bias": map[string]int{"2": -100}}}, seen)
	if err := errors.Join(err, result()); err != nil {
		return 0, err
	}
	if !first.Completed || first.Finish != "length" {
		return 0, fmt.Errorf("the stream that fills the pool was harmed: %+v, %v", first, first.Err)
	}
	e := second.Err
	if e == nil || e.Status != 429 || e.RetryAfter == "" || !strings.Contains(e.Type, "rate_limit") {
		return 0, fmt.Errorf("full pool: %+v, %v, want 429 with Retry-After", second, e.String())
	}
	wait, cancel := context.WithTimeoutCause(ctx, 5*time.Second, errors.New("5 s are over"))
	defer cancel()
	return e.Status, st.Baseline(wait, "broker-p", "broker-d")
}
