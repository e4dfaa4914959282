package name

import (
	"strings"
	"testing"

	"leasehold.dev/protos/errs"
)

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		why, s string
		ok     bool
	}{
		{"a plain word is fine", "decode", true},
		{"digits, dots and dashes are fine inside", "kv-0.rack_7", true},
		{"63 bytes are the most", strings.Repeat("a", 63), true},
		{"64 bytes are too many", strings.Repeat("a", 64), false},
		{"nothing is no name", "", false},
		{"a slash would make a longer SPIFFE path", "a/b", false},
		{"a leading dot could climb a directory", "..", false},
		{"a leading dash would be a flag", "-a", false},
		{"a space is not a name", "a b", false},
		{"letters beyond ASCII are not names", "é", false},
		{"a newline would break a log", "a\n", false},
		{"a percent sign would be an escape", "a%2f", false},
	} {
		err := Check("id", c.s)
		if (err == nil) != c.ok {
			t.Errorf("%s: Check(%q) = %v", c.why, c.s, err)
		}
		if err != nil && errs.KindOf(err) != errs.Invalid {
			t.Errorf("%s: kind %v, want invalid", c.why, errs.KindOf(err))
		}
	}
}
