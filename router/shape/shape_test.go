package shape_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	openaiv1 "leasehold.dev/protos/gen/leasehold/openai/v1"
	"leasehold.dev/router/apierr"
	"leasehold.dev/router/shape"
)

// The bytes of whole answers are golden files of package edge; these are the rules behind them.

func TestErrorsHaveNullsNotEmptyStrings(t *testing.T) {
	for want, e := range map[string]*apierr.Error{
		`{"error":{"message":"no","type":"invalid_request_error","param":null,"code":null}}`:                    apierr.Malformed("no"),
		`{"error":{"message":"<n> & \"n\"","type":"invalid_request_error","param":"n","code":"invalid_value"}}`: apierr.Invalid("n", `<n> & "n"`),
	} {
		if got := string(shape.Error(e)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestEvent(t *testing.T) {
	if got := string(shape.Event([]byte(`{}`))) + "\n"; got != "data: {}\n\n" {
		t.Errorf("%q", got)
	}
	if got := string(shape.Done) + "\n"; got != "data: [DONE]\n\n" {
		t.Errorf("%q", got)
	}
}

func TestUsageIsAbsentNullOrThere(t *testing.T) {
	c := &openaiv1.ChatCompletionChunk{}
	for _, s := range []struct {
		usage *openaiv1.Usage
		with  bool
		want  string
	}{{nil, false, ""}, {nil, true, `,"usage":null}`}, {&openaiv1.Usage{PromptTokens: 1, CompletionTokens: 2, TotalTokens: 3}, true, `,"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}`}} {
		c.Usage = s.usage
		b, err := shape.ChatChunk(c, s.with)
		if err != nil || !strings.HasSuffix(string(b), s.want) || strings.Contains(string(b), "usage") != (s.want != "") {
			t.Errorf("%s, %v; want %s at its end", b, err, s.want)
		}
	}
}

func TestLogprobsThatJSONHasNot(t *testing.T) {
	for v, want := range map[float64]string{math.Inf(-1): "-9999", math.NaN(): "-9999", -1e30: "-9999", float64(float32(-0.1)): "-0.1", 0: "0", math.Copysign(0, -1): "-0"} {
		c := &openaiv1.ChatCompletion{Choices: []*openaiv1.Choice{{Logprobs: &openaiv1.ChoiceLogprobs{Content: []*openaiv1.TokenLogprob{{Token: "a", Logprob: v}}}}}}
		b, err := shape.Chat(c)
		if err != nil || !strings.Contains(string(b), `"logprob":`+want+`,"bytes":[]`) {
			t.Errorf("%v: %s, %v; want %s", v, b, err, want)
		}
	}
}

func TestTopTokensOfTheSameTextAreWrittenOnce(t *testing.T) {
	c := &openaiv1.Completion{Choices: []*openaiv1.TextChoice{{Logprobs: &openaiv1.TextLogprobs{TopLogprobs: []*openaiv1.TopTokens{{Tokens: []*openaiv1.TopLogprob{
		{Token: "b", Logprob: -1}, {Token: "\uFFFD", Logprob: -2}, {Token: "\uFFFD", Logprob: -3}, {Token: "a", Logprob: -4}}}}}}}}
	b, err := shape.Completion(c, false)
	if err != nil || !strings.Contains(string(b), `"top_logprobs":[{"b":-1,"`+"\uFFFD"+`":-2,"a":-4}]`) {
		t.Errorf("%s, %v", b, err)
	}
}

// Whatever the text is, the bytes are one line of JSON that gives it back.
func TestAnyTextSurvives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		b, err := shape.ChatChunk(&openaiv1.ChatCompletionChunk{Choices: []*openaiv1.ChunkChoice{{Delta: &openaiv1.Delta{Content: proto.String(text)}}}}, rapid.Bool().Draw(t, "usage"))
		if err != nil || strings.ContainsAny(string(b), "\n\r") {
			t.Fatalf("%q, %v", b, err)
		}
		var back struct {
			Choices []struct{ Delta struct{ Content string } }
		}
		if err := json.Unmarshal(b, &back); err != nil || back.Choices[0].Delta.Content != text {
			t.Fatalf("%q became %q, %v", text, back.Choices[0].Delta.Content, err)
		}
	})
}
