package server

import (
	"strings"
	"testing"
	"unicode/utf8"

	"leasehold.dev/kvbroker/client"
	"leasehold.dev/kvbroker/lease"
	"leasehold.dev/protos/errs"
)

func TestClipCutsAtACharacter(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     int // bytes
	}{
		{"nothing", "", 0},
		{"just enough", strings.Repeat("x", maxReason), maxReason},
		{"one byte too many", strings.Repeat("x", maxReason+1), maxReason},
		{"a character of 2 bytes across the cut", strings.Repeat("x", maxReason-1) + "é", maxReason - 1},
		{"a character of 4 bytes across the cut", strings.Repeat("x", maxReason-3) + "🦊", maxReason - 3},
		{"one that just fits", strings.Repeat("x", maxReason-4) + "🦊x", maxReason},
		{"bytes that are no text", "a\xffb", 2},
	} {
		if got := clip(tt.in); len(got) != tt.want || !utf8.ValidString(got) {
			t.Errorf("%s: %d bytes, valid %v, want %d", tt.name, len(got), utf8.ValidString(got), tt.want)
		}
	}
}

// Whatever the reason of a revoke is made of, the worker hears it, and its Watch goes on.
func TestRevokeOfAnyReasonReachesItsWorker(t *testing.T) {
	for name, reason := range map[string]string{
		"long, with a character across the cut": strings.Repeat("x", maxReason-1) + strings.Repeat("é", 40),
		"no text":                               "bytes \xc3\x28 of somebody",
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, newFleet(t), "b1", 8)
			d := n.attach(t, "d0")
			var leases []*client.Lease
			for range 2 {
				l, err := d.Reserve(t.Context(), newRequest(t, 10, 4, none).solo())
				if err != nil {
					t.Fatal(err)
				}
				leases = append(leases, l)
			}
			for i, why := range []string{reason, "plain"} {
				n.report(lease.Revoke{Lease: lease.ID(leases[i].ID), Kind: errs.Limit, Reason: why})
				within(t, "revoke", leases[i].Revoked())
				wantKind(t, "RevokeErr", leases[i].RevokeErr(), errs.Limit)
				retire(t, leases[i], false)
			}
			n.baseline(t)
		})
	}
}
