package rest

import (
	"bytes"
	"encoding/json"
	"io"
	"unicode/utf8"

	"leasehold.dev/router/apierr"
)

// maxDepth is deeper than any valid request.
const maxDepth = 16

// Body is a checked body.
type Body struct {
	JSON         []byte // only fields of the service definition
	IncludeUsage bool   // a stream whose chunks have usage, null but in the last
}

// Chat checks the body of POST /v1/chat/completions.
func Chat(body []byte) (*Body, error) { return check(body, chat) }

// Completion checks the body of POST /v1/completions.
func Completion(body []byte) (*Body, error) { return check(body, completion) }

// Report checks the body of POST /v1/receipts/{id}/report: nothing, or the request that the receipt is about.
func Report(body []byte) (*Body, error) {
	if len(body) == 0 {
		return &Body{JSON: []byte("{}")}, nil
	}
	if err := sane(body); err != nil {
		return nil, err
	}
	out := &Body{JSON: []byte("{}")}
	err := object("", body, func(name string, raw json.RawMessage) error {
		rules, ok := map[string]map[string]rule{"chat": chat, "completion": completion}[name]
		switch {
		case !ok:
			return apierr.Unknown(name)
		case isNull(raw):
			return nil
		case len(out.JSON) > 2:
			return apierr.Invalid(name, "Give one of 'chat' and 'completion'.")
		case raw[0] != '{':
			return typeError(name, "an object")
		}
		inner, err := check(raw, rules)
		if err != nil {
			return err
		}
		out.JSON = append(append([]byte(`{"`+name+`":`), inner.JSON...), '}')
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func sane(body []byte) error {
	if !utf8.Valid(body) {
		return apierr.Malformed("The request body is not valid UTF-8.")
	}
	if d := depth(body); d > maxDepth {
		return apierr.Malformed("The request body is nested %d deep, at most %d are allowed.", d, maxDepth)
	}
	return nil
}

func check(body []byte, rules map[string]rule) (*Body, error) {
	if err := sane(body); err != nil {
		return nil, err
	}
	out, usage := []byte{'{'}, false
	err := object("", body, func(name string, raw json.RawMessage) error {
		r, ok := rules[name]
		if !ok {
			return refuse("", name, raw, chat, completion)
		}
		if isNull(raw) {
			return nil
		}
		if err := r.check(name, raw); err != nil {
			return err
		}
		if name == "stream_options" {
			usage = bytes.Contains(raw, []byte("true")) // its one passed field is a bool
		}
		if r.drop {
			return nil
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		key, err := json.Marshal(name)
		out = append(append(append(out, key...), ':'), raw...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &Body{JSON: append(out, '}'), IncludeUsage: usage}, nil
}

// object calls f for each member of a JSON object, in order, and refuses a repeated one. prefix names the object.
func object(prefix string, body []byte, f func(name string, raw json.RawMessage) error) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		if prefix == "" {
			return apierr.Malformed("The request body is not a JSON object.")
		}
		return typeError(trim(prefix), "an object")
	}
	seen, last := map[string]bool{}, trim(prefix) // the field that was begun last
	for dec.More() {
		t, err := dec.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return syntax(last, dec)
		}
		last = prefix + name
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return syntax(last, dec)
		}
		if seen[name] {
			return apierr.Invalid(prefix+name, "The field '%s' is given twice.", prefix+name)
		}
		seen[name] = true
		if err := f(name, raw); err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil {
		return syntax(last, dec)
	}
	if _, err := dec.Token(); err != io.EOF {
		return apierr.Malformed("There is text after the end of the JSON object.")
	}
	return nil
}

func trim(prefix string) string {
	if n := len(prefix); n > 0 {
		return prefix[:n-1]
	}
	return ""
}

// syntax names the field at which the JSON breaks off, when one has begun.
func syntax(param string, dec *json.Decoder) error {
	e := apierr.Malformed("The request body is not valid JSON: it breaks off after byte %d.", dec.InputOffset())
	if param != "" {
		e = apierr.Invalid(param, "The request body is not valid JSON: it breaks off at or after the value of '%s', after byte %d.", param, dec.InputOffset())
	}
	return e
}

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }

// depth is how deep brackets nest outside of strings. It needs no valid JSON.
func depth(body []byte) int {
	d, most, text := 0, 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '[' || c == '{':
			d++
			most = max(most, d)
		case c == ']' || c == '}':
			d--
		}
	}
	return most
}
