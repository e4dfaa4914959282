package rest_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"

	openaiv1 "leasehold.dev/protos/gen/leasehold/openai/v1"
	"leasehold.dev/router/apierr"
	"leasehold.dev/router/rest"
)

const messages = `"messages":[{"role":"user","content":"Hi"}]`

func body(more string) string {
	if !strings.Contains(more, `"messages"`) {
		more += "," + messages
	}
	return `{"model":"m"` + more + `}`
}

func TestRefusalsByName(t *testing.T) {
	for _, c := range []struct{ more, param, code string }{
		// OpenAI's fields that would change the answer
		{`,"tools":[{"type":"function"}]`, "tools", "unsupported_parameter"}, {`,"tools":[]`, "tools", "unsupported_parameter"},
		{`,"tool_choice":"auto"`, "tool_choice", "unsupported_parameter"}, {`,"functions":[]`, "functions", "unsupported_parameter"},
		{`,"function_call":"auto"`, "function_call", "unsupported_parameter"}, {`,"parallel_tool_calls":true`, "parallel_tool_calls", "unsupported_parameter"},
		{`,"response_format":{"type":"json_object"}`, "response_format", "unsupported_parameter"}, {`,"response_format":"text"`, "response_format", "unsupported_parameter"},
		{`,"audio":{"voice":"x"}`, "audio", "unsupported_parameter"}, {`,"modalities":["text","audio"]`, "modalities", "unsupported_parameter"},
		{`,"prediction":{}`, "prediction", "unsupported_parameter"}, {`,"store":true`, "store", "unsupported_parameter"},
		{`,"web_search_options":{}`, "web_search_options", "unsupported_parameter"}, {`,"reasoning_effort":"low"`, "reasoning_effort", "unsupported_parameter"},
		{`,"verbosity":"low"`, "verbosity", "unsupported_parameter"}, {`,"service_tier":"flex"`, "service_tier", "unsupported_parameter"},
		{`,"echo":true`, "echo", "unsupported_parameter"}, {`,"prompt":"x"`, "prompt", "unsupported_parameter"}, // of the other endpoint
		// nobody's fields, ours inside of the mesh included
		{`,"foo":1`, "foo", "unknown_parameter"}, {`,"foo":null`, "foo", "unknown_parameter"}, {`,"lease":"00"`, "lease", "unknown_parameter"},
		{`,"transfer_id":"x"`, "transfer_id", "unknown_parameter"}, {`,"prefill_address":"x"`, "prefill_address", "unknown_parameter"}, {`,"cache_salt":"x"`, "cache_salt", "unknown_parameter"},
		{`,"maxTokens":5`, "maxTokens", "unknown_parameter"}, {`,"Model":"m"`, "Model", "unknown_parameter"},
		// types and ranges
		{`,"max_tokens":"5"`, "max_tokens", "invalid_value"}, {`,"max_tokens":5.0`, "max_tokens", "invalid_value"}, {`,"max_tokens":1e2`, "max_tokens", "invalid_value"},
		{`,"max_tokens":-1`, "max_tokens", "invalid_value"}, {`,"max_tokens":0`, "max_tokens", "invalid_value"}, {`,"max_tokens":4294967296`, "max_tokens", "invalid_value"},
		{`,"max_tokens":99999999999999999999999999`, "max_tokens", "invalid_value"}, {`,"max_tokens":[1]`, "max_tokens", "invalid_value"},
		{`,"n":9`, "n", "invalid_value"}, {`,"n":true`, "n", "invalid_value"}, {`,"seed":9223372036854775808`, "seed", "invalid_value"}, {`,"seed":"1"`, "seed", "invalid_value"},
		{`,"temperature":"1"`, "temperature", "invalid_value"}, {`,"temperature":"NaN"`, "temperature", "invalid_value"}, {`,"temperature":1e999`, "temperature", "invalid_value"},
		{`,"stream":"true"`, "stream", "invalid_value"}, {`,"stream":1`, "stream", "invalid_value"}, {`,"logprobs":1`, "logprobs", "invalid_value"}, {`,"top_logprobs":21`, "top_logprobs", "invalid_value"},
		{`,"user":5`, "user", "invalid_value"}, {`,"metadata":{"a":1}`, "metadata.a", "invalid_value"}, {`,"metadata":[]`, "metadata", "invalid_value"},
		{`,"logit_bias":{"5":"1"}`, "logit_bias.5", "invalid_value"}, {`,"logit_bias":[1]`, "logit_bias", "invalid_value"},
		{`,"stream_options":true`, "stream_options", "invalid_value"}, {`,"stream_options":{"include_usage":1}`, "stream_options.include_usage", "invalid_value"},
		{`,"stream_options":{"x":1}`, "stream_options.x", "unknown_parameter"}, {`,"stream_options":{"include_obfuscation":true}`, "stream_options.include_obfuscation", "unsupported_parameter"},
		{`,"messages":{}`, "messages", "invalid_value"}, {`,"messages":["x"]`, "messages[0]", "invalid_value"}, {`,"messages":[{"role":5}]`, "messages[0].role", "invalid_value"},
		{`,"messages":[{"role":"user","content":"x","tool_calls":[]}]`, "messages[0].tool_calls", "unsupported_parameter"},
		{`,"messages":[{"role":"user","content":"x"},{"role":"user","content":"x","foo":1}]`, "messages[1].foo", "unknown_parameter"},
		{`,"n":1,"n":2`, "n", "invalid_value"}, {`,"messages":[{"role":"user","role":"system","content":"x"}]`, "messages[0].role", "invalid_value"},
		{`,"user":"` + strings.Repeat("x", 300<<10) + `"`, "user", "invalid_value"},
	} {
		_, err := rest.Chat([]byte(body(c.more)))
		e, ok := apierr.As(err)
		if !ok || e.HTTP != 400 || e.Param != c.param || e.Code != c.code {
			t.Errorf("%.80s: %#v, want %s of %s", c.more, err, c.code, c.param)
		}
	}
	for _, c := range []struct{ more, param string }{
		{`,"best_of":2`, "best_of"}, {`,"suffix":"x"`, "suffix"}, {`,"tools":[]`, "tools"}, {`,"messages":[]`, "messages"}, {`,"top_logprobs":1`, "top_logprobs"},
		{`,"logprobs":true`, "logprobs"}, {`,"echo":1`, "echo"}, {`,"prompt":[` + strings.Repeat("1,", 1<<20) + `1]`, "prompt"},
	} {
		_, err := rest.Completion([]byte(`{"model":"m"` + c.more + `}`))
		if e, ok := apierr.As(err); !ok || e.HTTP != 400 || e.Param != c.param {
			t.Errorf("completion %.40s: %v, want a refusal of %s", c.more, err, c.param)
		}
	}
}

func TestFieldsThatDoNotChangeTheAnswerAreDropped(t *testing.T) {
	for _, more := range []string{`,"metadata":{"a":"b"}`, `,"store":false`, `,"service_tier":"auto"`, `,"service_tier":"default"`, `,"safety_identifier":"x"`,
		`,"response_format":{ "type" : "text" }`, `,"modalities":["text"]`, `,"prompt_cache_key":"x"`,
		`,"tools":null,"stop":null,"seed":null,"response_format":null,"stream_options":null,"n":null`} {
		b, err := rest.Chat([]byte(body(more)))
		if err != nil || string(b.JSON) != `{"model":"m",`+messages+`}` {
			t.Errorf("%s: %s, %v", more, b.JSON, err)
		}
	}
	if b, err := rest.Completion([]byte(`{"model":"m","prompt":"x","best_of":1,"suffix":null,"echo":false}`)); err != nil || string(b.JSON) != `{"model":"m","prompt":"x","echo":false}` {
		t.Errorf("completion: %s, %v", b.JSON, err)
	}
	// an earlier answer of ours comes back as it was sent
	if _, err := rest.Chat([]byte(body(`,"messages":[{"role":"assistant","content":"x","refusal":null,"tool_calls":null,"name":null}]`))); err != nil {
		t.Error(err)
	}
}

func TestIncludeUsage(t *testing.T) {
	for more, want := range map[string]bool{"": false, `,"stream_options":{}`: false, `,"stream_options":{"include_usage":false}`: false,
		`,"stream_options":{"include_usage": true}`: true, `,"stream_options":{"include_obfuscation":false}`: false, `,"user":"true"`: false} {
		if b, err := rest.Chat([]byte(body(more))); err != nil || b.IncludeUsage != want {
			t.Errorf("%s: %v, %v; want %v", more, b.IncludeUsage, err, want)
		}
	}
}

func TestBodiesThatAreNoObject(t *testing.T) {
	deep := func(n int) string { return `{"stop":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}` }
	for _, c := range []struct{ body, param string }{
		{"", ""}, {"null", ""}, {"[]", ""}, {`"x"`, ""}, {"5", ""}, {"{", ""}, {`{"model"`, "model"}, {`{"model":`, "model"}, {`{"model":"m"`, "model"}, {`{"model":"m",}`, "model"},
		{`{"max_tokens":5x}`, "max_tokens"}, {`{"model":"m"} x`, ""}, {`{"model":"m"}{}`, ""}, {"{\"model\":\"\xff\"}", ""}, {"\xef\xbb\xbf{}", ""}, {`{model:"m"}`, ""},
		{deep(16), ""}, {deep(100000), ""},
	} {
		_, err := rest.Chat([]byte(c.body))
		if e, ok := apierr.As(err); !ok || e.HTTP != 400 || e.Param != c.param {
			t.Errorf("%.40q: %#v, want a refusal of %q", c.body, err, c.param)
		}
	}
}

func TestManyElementsAreRefusedEarly(t *testing.T) {
	many := func(n int) string {
		return `,"messages":[` + strings.TrimSuffix(strings.Repeat(`{"role":"user","content":"x"},`, n), ",") + `]`
	}
	if _, err := rest.Chat([]byte(body(many(4096)))); err != nil {
		t.Errorf("4096 messages: %v", err)
	}
	if _, err := rest.Chat([]byte(body(many(4097)))); err == nil {
		t.Error("4097 messages are taken")
	}
	parts := `,"messages":[{"role":"user","content":[` + strings.TrimSuffix(strings.Repeat(`{"type":"text","text":"x"},`, 1025), ",") + `]}]`
	if _, err := rest.Chat([]byte(body(parts))); err == nil {
		t.Error("1025 parts are taken")
	}
}

// Whatever the body: no panic; a refusal is a 4xx; what passes is JSON with known fields only, and stable.
func FuzzChat(f *testing.F) {
	for _, s := range []string{body(""), body(`,"n":2,"stop":["a"],"stream":true,"stream_options":{"include_usage":true}`), body(`,"tools":[]`), `{"a":[{"b":"\"]"}]}`, `{"model":"\ud800"}`, "{}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		b, err := rest.Chat(in)
		if err != nil {
			if e, ok := apierr.As(err); !ok || e.HTTP != 400 || !utf8.ValidString(e.Message) {
				t.Fatalf("%v is no refusal", err)
			}
			return
		}
		if !json.Valid(b.JSON) {
			t.Fatalf("%q became %q", in, b.JSON)
		}
		again, err := rest.Chat(b.JSON)
		if err != nil || string(again.JSON) != string(b.JSON) {
			t.Fatalf("%q passes, then %v", b.JSON, err)
		}
		// protojson may still refuse, but must not find a field that it does not know
		err = protojson.Unmarshal(b.JSON, &openaiv1.ChatCompletionsRequest{})
		if err != nil && strings.Contains(fmt.Sprint(err), "unknown field") && !strings.Contains(string(in), "null") && !strings.Contains(string(in), "include_obfuscation") {
			t.Fatalf("%q: %v", b.JSON, err)
		}
	})
}

func TestReports(t *testing.T) {
	for body, want := range map[string]string{
		"":                                     `{}`,
		`{}`:                                   `{}`,
		`{"chat":null,"completion":null}`:      `{}`,
		`{"chat":{"model":"m","store":false}}`: `{"chat":{"model":"m"}}`,
		`{"completion":{"prompt":[1,2]}}`:      `{"completion":{"prompt":[1,2]}}`,
	} {
		got, err := rest.Report([]byte(body))
		if err != nil || string(got.JSON) != want {
			t.Errorf("%s: %v, want %s", body, err, want)
		}
	}
	for body, param := range map[string]string{
		`{"chat":{},"completion":{}}`: "completion",
		`{"chat":{},"chat":{}}`:       "chat",
		`{"chat":[]}`:                 "chat",
		`{"chat":{"model":1}}`:        "model",
		`{"chat":{"prompt":"a"}}`:     "prompt",
		`{"id":"a"}`:                  "id",
		`{"reason":"it said: ..."}`:   "reason",
		`[]`:                          "",
		"\"\xff\"":                    "",
		`{"chat":{"model":` + strings.Repeat("[", 20) + `}}`: "",
	} {
		_, err := rest.Report([]byte(body))
		e, ok := apierr.As(err)
		if !ok || e.HTTP != 400 || e.Param != param {
			t.Errorf("%s: %v, want 400 about %q", body, err, param)
		}
	}
}
