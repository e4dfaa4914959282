package flow

import (
	"testing"

	"leasehold.dev/router/verdict"
)

// Uncompared switches the inline comparison of verdicts off for one test.
func Uncompared(t *testing.T) {
	was := compare
	compare = func(verdict.Views) error { return nil }
	t.Cleanup(func() { compare = was })
}
