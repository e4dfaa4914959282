package rest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	stringsx "strings"

	"leasehold.dev/router/apierr"
	"leasehold.dev/router/validate"
)

// maxSmall bounds the raw bytes of fields that are not the prompt.
const maxSmall = 256 << 10

func typeError(param, want string) error {
	return apierr.Invalid(param, "Invalid type for '%s': expected %s.", param, want)
}

func text(param string, raw json.RawMessage) error {
	if raw[0] != '"' {
		return typeError(param, "a string")
	}
	return small(param, raw)
}

func boolean(param string, raw json.RawMessage) error {
	if raw[0] != 't' && raw[0] != 'f' {
		return typeError(param, "a boolean")
	}
	return nil
}

func isNumber(raw json.RawMessage) bool { return raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9' }

func number(param string, raw json.RawMessage) error {
	if !isNumber(raw) {
		return typeError(param, "a number")
	}
	if _, err := strconv.ParseFloat(string(raw), 64); err != nil {
		return apierr.Invalid(param, "Invalid value for '%s': the number is out of range.", param)
	}
	return nil
}

func integer(lo, hi int64) func(string, json.RawMessage) error {
	return func(param string, raw json.RawMessage) error {
		if !isNumber(raw) || bytes.ContainsAny(raw, ".eE") {
			return typeError(param, "an integer")
		}
		v, err := strconv.ParseInt(string(raw), 10, 64)
		if err != nil || v < lo || v > hi {
			return apierr.Invalid(param, "Invalid value for '%s': expected an integer from %d to %d, got %s.", param, lo, hi, digits(raw))
		}
		return nil
	}
}

func digits(raw []byte) string {
	if len(raw) > 24 {
		return string(raw[:24]) + "..."
	}
	return string(raw)
}

// only accepts values that ask for nothing; any other one would change the answer.
func only(literals ...string) func(string, json.RawMessage) error {
	return func(param string, raw json.RawMessage) error {
		var b bytes.Buffer
		if len(raw) <= maxSmall && json.Compact(&b, raw) == nil {
			for _, l := range literals {
				if b.String() == l {
					return nil
				}
			}
		}
		return apierr.Unsupported(param, stringsx.Join(literals, " or "))
	}
}

func small(param string, raw json.RawMessage) error {
	if len(raw) > maxSmall {
		return apierr.Invalid(param, "Invalid '%s': it has %d bytes, at most %d are allowed.", param, len(raw), maxSmall)
	}
	return nil
}

func numbers(param string, raw json.RawMessage) error { return members(param, raw, number) }
func strings(param string, raw json.RawMessage) error { return members(param, raw, text) }

func members(param string, raw json.RawMessage, check func(string, json.RawMessage) error) error {
	if err := small(param, raw); err != nil {
		return err
	}
	return object(param+".", raw, func(name string, raw json.RawMessage) error { return check(param+"."+name, raw) })
}

func streamOptions(param string, raw json.RawMessage) error {
	return object(param+".", raw, func(name string, raw json.RawMessage) error {
		switch {
		case isNull(raw):
			return nil
		case name == "include_usage":
			return boolean(param+"."+name, raw)
		case name == "include_obfuscation":
			return only("false")(param+"."+name, raw)
		}
		return refuse(param+".", name, raw)
	})
}

func messages(param string, raw json.RawMessage) error {
	return each(param, raw, validate.MaxMessages, func(at string, raw json.RawMessage) error {
		return object(at+".", raw, func(name string, raw json.RawMessage) error {
			switch {
			case isNull(raw) && name == "name":
				return nil
			case name == "role" || name == "name":
				return text(at+"."+name, raw)
			case name == "content":
				if raw[0] != '[' {
					return nil
				}
				return each(at+".content", raw, validate.MaxParts, func(string, json.RawMessage) error { return nil })
			}
			return refuse(at+".", name, raw)
		})
	})
}

func prompt(param string, raw json.RawMessage) error {
	if n := bytes.Count(raw, []byte{','}); raw[0] == '[' && n >= validate.MaxTokenIDs {
		return apierr.Invalid(param, "Invalid '%s': expected at most %d token ids, got about %d.", param, validate.MaxTokenIDs, n+1)
	}
	return nil
}

// each calls f for the elements of a JSON array of at most most.
func each(param string, raw json.RawMessage, most int, f func(at string, raw json.RawMessage) error) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, err := dec.Token(); err != nil || t != json.Delim('[') {
		return typeError(param, "an array")
	}
	for i := 0; dec.More(); i++ {
		if i == most {
			return apierr.Invalid(param, "Invalid '%s': at most %d elements are allowed.", param, most)
		}
		var e json.RawMessage
		if err := dec.Decode(&e); err != nil {
			return syntax(param, dec)
		}
		if err := f(fmt.Sprintf("%s[%d]", param, i), e); err != nil {
			return err
		}
	}
	return nil
}
