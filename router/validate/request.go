package validate

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	openaiv1 "leasehold.dev/protos/gen/leasehold/openai/v1"
	"leasehold.dev/router/apierr"
)

// Bounds of request fields, inclusive unless said.
const (
	MaxChoices        = 8
	MaxTopLogprobs    = 20
	MaxStops          = 4
	MaxStopBytes      = 1024
	MaxMessages       = 4096
	MaxParts          = 1024    // of one message's content
	MaxTokenIDs       = 1 << 20 // of a prompt given as ids
	CompletionDefault = 16      // max_tokens of /v1/completions when absent, as OpenAI's
)

// Message is one turn. Role is system, user or assistant.
type Message struct{ Role, Content string }

// Request is a valid request. Exactly one of Messages, Prompt and PromptIDs is set.
type Request struct {
	Model        string
	Messages     []Message
	Prompt       string
	PromptIDs    []int32
	Stream       bool
	IncludeUsage bool
	MaxNew       uint32  // 0: absent
	MaxNewParam  string  // the field that MaxNew came from
	N            uint32  // choices, >= 1
	Seed         *uint64 // nil: absent
	Sampling     *decodev1.Sampling
}

// Chat checks a chat request against vocab, the number of token ids.
func Chat(r *openaiv1.ChatCompletionsRequest, vocab uint32) (*Request, error) {
	if err := known(r.ProtoReflect()); err != nil {
		return nil, err
	}
	out, err := common(r, vocab)
	if err != nil {
		return nil, err
	}
	if out.Messages, err = messages(r.Messages); err != nil {
		return nil, err
	}
	if r.Logprobs != nil {
		out.Sampling.Logprobs = *r.Logprobs
	}
	if t := r.TopLogprobs; t != nil {
		if *t > MaxTopLogprobs {
			return nil, apierr.Invalid("top_logprobs", "Invalid value for 'top_logprobs': expected 0 to %d, got %d.", MaxTopLogprobs, *t)
		}
		if !out.Sampling.Logprobs {
			return nil, apierr.Invalid("top_logprobs", "'top_logprobs' needs 'logprobs' to be true.")
		}
		out.Sampling.TopLogprobs = *t
	}
	return out, maxNew(out, r.MaxTokens, r.MaxCompletionTokens)
}

// Completion checks a plain request.
func Completion(r *openaiv1.CompletionsRequest, vocab uint32) (*Request, error) {
	if err := known(r.ProtoReflect()); err != nil {
		return nil, err
	}
	out, err := common(r, vocab)
	if err != nil {
		return nil, err
	}
	if r.GetEcho() {
		return nil, apierr.Unsupported("echo", "false")
	}
	if err := prompt(out, r.Prompt, vocab); err != nil {
		return nil, err
	}
	if t := r.Logprobs; t != nil {
		if *t > MaxTopLogprobs {
			return nil, apierr.Invalid("logprobs", "Invalid value for 'logprobs': expected 0 to %d, got %d.", MaxTopLogprobs, *t)
		}
		out.Sampling.Logprobs, out.Sampling.TopLogprobs = true, *t
	}
	if err := maxNew(out, r.MaxTokens, nil); err != nil {
		return nil, err
	}
	if out.MaxNew == 0 {
		out.MaxNew, out.MaxNewParam = CompletionDefault, "max_tokens"
	}
	return out, nil
}

// maxDepth is how many messages may lie inside of each other. The deepest valid request has 7: a part's text.
const maxDepth = 32

// flaw is what known looks for.
type flaw int

const (
	none flaw = iota
	foreign
	deep
)

// known refuses fields of a newer service definition than ours, and nesting that no valid request has: protobuf itself
// decodes 10,000 levels.
func known(m protoreflect.Message) error {
	switch path, f := inspect(m, maxDepth); f {
	case foreign:
		return apierr.Unknown(path)
	case deep:
		field, _, _ := strings.Cut(path, ".")
		return apierr.Invalid(field, "Invalid '%s': it is nested more than %d messages deep.", field, maxDepth)
	}
	return nil
}

// inspect finds m's first flaw, and its path, which is put together on the way back only.
func inspect(m protoreflect.Message, depth int) (path string, found flaw) {
	if len(m.GetUnknown()) > 0 {
		return "(unknown protobuf field)", foreign
	}
	if depth == 0 {
		return "", deep
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		each(f, v, func(inner protoreflect.Message) bool {
			path, found = inspect(inner, depth-1)
			return found == none
		})
		if found != none {
			path = f.TextName() + "." + path
		}
		return found == none
	})
	return path, found
}

// each calls yield for the messages that the field f holds, until it says false.
func each(f protoreflect.FieldDescriptor, v protoreflect.Value, yield func(protoreflect.Message) bool) {
	switch {
	case f.IsMap():
		if f.MapValue().Message() != nil {
			v.Map().Range(func(_ protoreflect.MapKey, e protoreflect.Value) bool { return yield(e.Message()) })
		}
	case f.Message() == nil:
	case f.IsList():
		for i := range v.List().Len() {
			if !yield(v.List().Get(i).Message()) {
				return
			}
		}
	default:
		yield(v.Message())
	}
}

func maxNew(out *Request, tokens, completion *uint32) error {
	set := func(name string, v *uint32) error {
		switch {
		case v == nil:
			return nil
		case *v == 0:
			return apierr.Invalid(name, "Invalid value for '%s': expected at least 1, got 0.", name)
		case out.MaxNew != 0 && out.MaxNew != *v:
			return apierr.Invalid(name, "'max_tokens' is %d and 'max_completion_tokens' is %d: set one.", out.MaxNew, *v)
		}
		out.MaxNew, out.MaxNewParam = *v, name
		return nil
	}
	if err := set("max_tokens", tokens); err != nil {
		return err
	}
	return set("max_completion_tokens", completion)
}

func messages(in []*openaiv1.Message) ([]Message, error) {
	if len(in) == 0 {
		return nil, apierr.Missing("messages")
	}
	if len(in) > MaxMessages {
		return nil, apierr.Invalid("messages", "Invalid 'messages': expected at most %d, got %d.", MaxMessages, len(in))
	}
	out := make([]Message, len(in))
	for i, m := range in {
		at := path("messages", i)
		role, err := role(at+".role", m.GetRole())
		if err != nil {
			return nil, err
		}
		if m.Name != nil {
			return nil, apierr.Unsupported(at+".name", "")
		}
		text, err := content(at+".content", m.GetContent())
		if err != nil {
			return nil, err
		}
		out[i] = Message{role, text}
	}
	return out, nil
}

func role(param, r string) (string, error) {
	switch r {
	case "system", "user", "assistant":
		return r, nil
	case "developer": // OpenAI's newer word for system
		return "system", nil
	case "tool", "function":
		return "", apierr.Unsupported(param, "system, developer, user or assistant")
	case "":
		return "", apierr.Missing(param)
	}
	return "", apierr.Invalid(param, "Invalid value for '%s': expected one of %s.", param,
		strings.Join([]string{"system", "developer", "user", "assistant"}, ", "))
}
