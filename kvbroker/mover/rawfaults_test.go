//go:build faults

package mover

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"leasehold.dev/mesh/identity"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/fault"
)

// arm carries out a line of the control socket until the test ends.
func arm(t *testing.T, line string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "fault") // short: a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.WriteFile(filepath.Join(dir, "start"), []byte(line+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(fault.Environ, dir)
	c, err := fault.Listen()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
}

// Attached is the first message that passes mover/wire, page 1 the third: as with gRPC's framing.
func TestFaultsOfARawLane(t *testing.T) {
	for _, tt := range []struct {
		line, text string // no text: a byte of page 1 differs
	}{
		{"arm point:mover/wire drop after=2 times=1", "page 2 out of order, next is 1"},
		{"arm point:mover/wire duplicate after=2 times=1", "page 1 out of order, next is 2"},
		{"arm point:mover/wire reorder after=2 times=1", "page 2 out of order, next is 1"},
		{"arm point:mover/wire truncate after=2 times=1", "page 1 with 500 bytes over raw lane 0, where pages come whole"},
		{"arm point:mover/wire corrupt after=2 times=1 n=77", ""},
		{"arm point:mover/read corrupt after=1 times=1 n=77", ""},
		{"arm point:mover/page drop after=1 times=1", "page 2 out of order, next is 1"},
	} {
		t.Run(tt.line, func(t *testing.T) {
			p := newRawPeer(t, 6, 1000, identity.Plain(), identity.Plain())
			whole := newPages(6, 1000)
			arm(t, tt.line)
			_, err := p.move(t, 1)
			if tt.text != "" && (errs.KindOf(err) != errs.Corrupt || !strings.Contains(err.Error(), tt.text)) {
				t.Errorf("Receive = %v, want %q", err, tt.text)
			}
			if tt.text == "" && (err != nil || differ(p.src.to[1], whole.from[1]) != 1) {
				t.Errorf("Receive = %v, and %d bytes of page 1 differ, want 1", err, differ(p.src.to[1], whole.from[1]))
			}
			for i := range whole.from {
				if !bytes.Equal(p.src.from[i], whole.from[i]) {
					t.Errorf("page %d changed at its source", i)
				}
			}
		})
	}
}

func differ(a, b []byte) (n int) {
	for i := range a {
		if a[i] != b[i] {
			n++
		}
	}
	return n
}
