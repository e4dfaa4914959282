package cli

import (
	"fmt"

	"leasehold.dev/mesh/audit"
)

// notes are what is no flaw of a log but bounds what it shows.
func notes(r *audit.Report) (out []string) {
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if r.Unsigned > 0 {
		add("%d records are above the last head: a cut there would not show", r.Unsigned)
	}
	if r.Rotated > 0 {
		add("the records up to %d were removed by rotation, as a record says", r.Rotated)
	}
	if r.Lost > 0 {
		add("%d records are lost, as a record says: the log could not be written then", r.Lost)
	}
	if r.Torn > 0 {
		add("%d bytes of a torn line at the end: the process was killed, or is writing now", r.Torn)
	}
	if r.OwnKey {
		add("the key is the folder's own: keep key.pub.pem elsewhere and give it with --key")
	}
	return out
}
