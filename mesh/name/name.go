// Package name holds the rule for the names of services and instances: they go into SPIFFE ids, URLs, file names,
// metric labels and registries alike, so one rule must fit all.
package name

import "leasehold.dev/protos/errs"

// Max is the longest name.
const Max = 63

// Check is nil if s is 1 to [Max] letters, digits, '.', '_' and '-', the first a letter or digit. what is for the error.
func Check(what, s string) error {
	if s == "" {
		return errs.New(errs.Invalid, "%s is empty", what)
	}
	if len(s) > Max {
		return errs.New(errs.Invalid, "%s has %d bytes, at most %d are allowed", what, len(s), Max)
	}
	for i := range len(s) {
		c := s[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || c != '.' && c != '_' && c != '-') {
			return errs.New(errs.Invalid, "%s %.63q: byte %d is not allowed", what, s, i)
		}
	}
	return nil
}
