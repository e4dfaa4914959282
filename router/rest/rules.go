package rest

import (
	"encoding/json"
	"math"

	"leasehold.dev/router/apierr"
	"leasehold.dev/router/validate"
)

// rule says what one field may be. drop: it does not change the answer and goes no further.
type rule struct {
	check func(param string, raw json.RawMessage) error
	drop  bool
}

func shared() map[string]rule {
	return map[string]rule{
		"model":              {check: text},
		"stream":             {check: boolean},
		"stream_options":     {check: streamOptions},
		"stop":               {check: small},
		"temperature":        {check: number},
		"top_p":              {check: number},
		"top_k":              {check: integer(0, math.MaxUint32)},
		"min_p":              {check: number},
		"frequency_penalty":  {check: number},
		"presence_penalty":   {check: number},
		"repetition_penalty": {check: number},
		"seed":               {check: integer(math.MinInt64, math.MaxInt64)},
		"max_tokens":         {check: integer(1, math.MaxUint32)},
		"n":                  {check: integer(1, validate.MaxChoices)},
		"logit_bias":         {check: numbers},
		"user":               {check: text},

		"safety_identifier": {check: text, drop: true},
		"metadata":          {check: strings, drop: true},
		"store":             {check: only("false"), drop: true},
		"service_tier":      {check: only(`"auto"`, `"default"`), drop: true},
	}
}

func with(m map[string]rule, more map[string]rule) map[string]rule {
	for k, v := range more {
		m[k] = v
	}
	return m
}

var chat = with(shared(), map[string]rule{
	"messages":              {check: messages},
	"max_completion_tokens": {check: integer(1, math.MaxUint32)},
	"logprobs":              {check: boolean},
	"top_logprobs":          {check: integer(0, validate.MaxTopLogprobs)},

	"response_format":        {check: only(`{"type":"text"}`), drop: true},
	"modalities":             {check: only(`["text"]`), drop: true},
	"prompt_cache_key":       {check: text, drop: true},
	"prompt_cache_retention": {check: text, drop: true},
})

var completion = with(shared(), map[string]rule{
	"prompt":   {check: prompt},
	"logprobs": {check: integer(0, validate.MaxTopLogprobs)},
	"echo":     {check: boolean},
	"best_of":  {check: only("1"), drop: true},
	"suffix":   {check: only(`""`), drop: true},
})

// later are fields of OpenAI's that we know and do not serve.
var later = map[string]bool{
	"tools": true, "tool_choice": true, "functions": true, "function_call": true, "parallel_tool_calls": true,
	"response_format": true, "audio": true, "modalities": true, "prediction": true, "web_search_options": true,
	"reasoning_effort": true, "reasoning": true, "verbosity": true, "best_of": true, "suffix": true, "echo": true,
	"tool_calls": true, "tool_call_id": true, "refusal": true, "annotations": true, "moderation": true,
	"guided_json": true, "guided_regex": true, "guided_choice": true, "guided_grammar": true, "grammar": true,
	"chat_template": true, "chat_template_kwargs": true, "ignore_eos": true, "min_tokens": true, "stop_token_ids": true,
}

// refuse names a field that has no rule here; one of another endpoint of ours is unsupported as well. A null changes
// nothing and passes when the name is known.
func refuse(prefix, name string, raw json.RawMessage, others ...map[string]rule) error {
	known := later[name]
	for _, o := range others {
		if _, ok := o[name]; ok {
			known = true
		}
	}
	switch {
	case known && isNull(raw):
		return nil
	case known:
		return apierr.Unsupported(prefix+name, "")
	}
	return apierr.Unknown(prefix + name)
}
