package validate

import (
	"fmt"
	"math"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	"leasehold.dev/router/apierr"
)

func path(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }

// content is a string, or an array of text parts, which are joined.
func content(param string, v *structpb.Value) (string, error) {
	switch k := v.GetKind().(type) {
	case *structpb.Value_StringValue:
		return k.StringValue, nil
	case *structpb.Value_ListValue:
		parts := k.ListValue.GetValues()
		if len(parts) == 0 || len(parts) > MaxParts {
			return "", apierr.Invalid(param, "Invalid '%s': expected 1 to %d parts, got %d.", param, MaxParts, len(parts))
		}
		var b strings.Builder
		for i, p := range parts {
			s, err := part(path(param, i), p)
			if err != nil {
				return "", err
			}
			b.WriteString(s)
		}
		return b.String(), nil
	}
	return "", apierr.Invalid(param, "Invalid type for '%s': expected a string or an array of text parts.", param)
}

func part(param string, v *structpb.Value) (string, error) {
	fields := v.GetStructValue().GetFields()
	if t := fields["type"].GetStringValue(); t != "text" {
		return "", apierr.Unsupported(param+".type", "text")
	}
	text, ok := fields["text"].GetKind().(*structpb.Value_StringValue)
	if !ok {
		return "", apierr.Missing(param + ".text")
	}
	for name := range fields {
		if name != "type" && name != "text" {
			return "", apierr.Unknown(param + "." + name)
		}
	}
	return text.StringValue, nil
}

func stop(v *structpb.Value) ([]string, error) {
	var out []string
	switch k := v.GetKind().(type) {
	case nil, *structpb.Value_NullValue:
		return nil, nil
	case *structpb.Value_StringValue:
		out = []string{k.StringValue}
	case *structpb.Value_ListValue:
		if n := len(k.ListValue.GetValues()); n > MaxStops {
			return nil, apierr.Invalid("stop", "Invalid 'stop': expected at most %d strings, got %d.", MaxStops, n)
		}
		for i, e := range k.ListValue.GetValues() {
			s, ok := e.GetKind().(*structpb.Value_StringValue)
			if !ok {
				return nil, apierr.Invalid(path("stop", i), "Invalid type for '%s': expected a string.", path("stop", i))
			}
			out = append(out, s.StringValue)
		}
	default:
		return nil, apierr.Invalid("stop", "Invalid type for 'stop': expected a string or an array of strings.")
	}
	for _, s := range out {
		if s == "" || len(s) > MaxStopBytes {
			return nil, apierr.Invalid("stop", "Invalid 'stop': expected strings of 1 to %d bytes, got one of %d.", MaxStopBytes, len(s))
		}
	}
	return out, nil
}

// prompt is one string, alone or in an array, or one array of token ids.
func prompt(out *Request, v *structpb.Value, vocab uint32) error {
	switch k := v.GetKind().(type) {
	case nil, *structpb.Value_NullValue:
		return apierr.Missing("prompt")
	case *structpb.Value_StringValue:
		out.Prompt = k.StringValue
	case *structpb.Value_ListValue:
		vs := k.ListValue.GetValues()
		if len(vs) == 1 {
			if s, ok := vs[0].GetKind().(*structpb.Value_StringValue); ok {
				out.Prompt = s.StringValue
				break
			}
		}
		if len(vs) > MaxTokenIDs {
			return apierr.Invalid("prompt", "Invalid 'prompt': expected at most %d token ids, got %d.", MaxTokenIDs, len(vs))
		}
		out.PromptIDs = make([]int32, len(vs))
		for i, e := range vs {
			f, ok := e.GetKind().(*structpb.Value_NumberValue)
			if !ok {
				return apierr.Invalid("prompt", "Invalid type for 'prompt': expected one string or one array of token ids.")
			}
			if !(f.NumberValue >= 0 && f.NumberValue < float64(vocab)) || f.NumberValue != math.Trunc(f.NumberValue) {
				return apierr.Invalid(path("prompt", i), "Invalid value for '%s': expected a token id from 0 to %d, got %v.", path("prompt", i), vocab-1, f.NumberValue)
			}
			out.PromptIDs[i] = int32(f.NumberValue)
		}
	default:
		return apierr.Invalid("prompt", "Invalid type for 'prompt': expected one string or one array of token ids.")
	}
	if out.Prompt == "" && len(out.PromptIDs) == 0 {
		return apierr.Invalid("prompt", "Invalid 'prompt': it has no tokens, expected at least 1.")
	}
	return nil
}
