//go:build !cgo

package engine_test

import (
	"strings"
	"testing"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/gpu/layout"
	"leasehold.dev/protos/errs"
)

func TestWithoutCgoOpenSaysWhatIsMissing(t *testing.T) {
	_, err := engine.Open(nil, engine.Options{Backend: layout.CPU})
	if errs.KindOf(err) != errs.Unavailable || !strings.Contains(err.Error(), "cgo") {
		t.Errorf("Open = %v, want Unavailable and the word cgo", err)
	}
	if s := engine.SIMDs(); len(s) != 0 {
		t.Errorf("SIMDs() = %v, want none", s)
	}
}
