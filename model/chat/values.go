package chat

import (
	"errors"

	"github.com/ardanlabs/jinja"
)

// exception is what a template raised itself.
type exception struct{ text string }

func (e *exception) Error() string { return "exception" }

var errRange = errors.New("range over its limit")

// values are a template's variables. The last three take the place of the engine's own functions of these names.
func (t *Template) values(messages []Message, addGenerationPrompt bool) map[string]jinja.Value {
	list := make([]jinja.Value, len(messages))
	for i, m := range messages {
		list[i] = jinja.NewDict()
		list[i].AsDict().Set("role", jinja.NewString(m.Role))
		list[i].AsDict().Set("content", jinja.NewString(m.Content))
	}
	return map[string]jinja.Value{
		"messages":              jinja.NewList(list),
		"add_generation_prompt": jinja.NewBool(addGenerationPrompt),
		"bos_token":             jinja.NewString(t.bos),
		"eos_token":             jinja.NewString(t.eos),
		"raise_exception":       jinja.NewCallable("raise_exception", raise),
		"range":                 jinja.NewCallable("range", boundedRange()),
		"strftime_now":          jinja.Undefined(),
	}
}

func raise(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	e := &exception{}
	if len(args) > 0 && args[0].IsString() {
		e.text = args[0].AsString()
	}
	return jinja.Undefined(), e
}

// boundedRange is range() with a budget that all its calls share.
func boundedRange() func([]jinja.Value, map[string]jinja.Value) (jinja.Value, error) {
	budget := int64(maxRange)
	return func(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
		start, stop, step := int64(0), int64(0), int64(1)
		for _, a := range args {
			if !a.IsInt() {
				return jinja.Undefined(), errRange
			}
		}
		switch len(args) {
		case 1:
			stop = args[0].AsInt()
		case 2:
			start, stop = args[0].AsInt(), args[1].AsInt()
		case 3:
			start, stop, step = args[0].AsInt(), args[1].AsInt(), args[2].AsInt()
		default:
			return jinja.Undefined(), errRange
		}
		if step == 0 {
			return jinja.Undefined(), errRange
		}
		var items []jinja.Value
		for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
			if budget--; budget < 0 {
				return jinja.Undefined(), errRange
			}
			items = append(items, jinja.NewInt(i))
		}
		return jinja.NewList(items), nil
	}
}
