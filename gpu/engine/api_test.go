package engine_test

import (
	"testing"

	"leasehold.dev/gpu/engine"
)

// Names are metric labels: fixed, and never from outside.
func TestFaultKindNames(t *testing.T) {
	for kind, want := range map[engine.FaultKind]string{
		engine.FaultRead: "read", engine.FaultWrite: "write", engine.FaultLength: "length", engine.FaultPages: "pages",
		0: "unknown", 5: "unknown", 1 << 31: "unknown",
	} {
		if got := kind.String(); got != want {
			t.Errorf("FaultKind(%d) = %q, want %q", uint32(kind), got, want)
		}
	}
}
