package explore

import (
	"fmt"
	"strings"

	"leasehold.dev/kvbroker/lease"
)

// outcomeOf is what a step of the table brought, in a line.
func outcomeOf(effects []lease.Effect, err error) string {
	if err != nil {
		return "refused: " + err.Error()
	}
	var out []string
	for _, e := range effects {
		out = append(out, effectWord(e))
	}
	if len(out) == 0 {
		return "ok"
	}
	return strings.Join(out, "; ")
}

func effectWord(e lease.Effect) string {
	switch e := e.(type) {
	case lease.WriteTags:
		return "tags" + tagWords(e.Tags)
	case lease.Granted:
		return "granted" + tagWords(e.Pages)
	case lease.Revoked:
		return "worker is told"
	case lease.EndPull:
		return "movers are stopped"
	case lease.Zero:
		return fmt.Sprintf("clear %v", e.Pages)
	case lease.Record:
		if e.Reason != "" {
			return fmt.Sprintf("%v %v of %s: %s", e.Kind, e.Role, e.Tenant, e.Reason)
		}
		return fmt.Sprintf("%v %v of %s", e.Kind, e.Role, e.Tenant)
	case lease.Draining:
		return "draining: " + e.Reason
	case lease.Ignored:
		return "ignored: " + e.Reason
	}
	return fmt.Sprintf("%T", e)
}

func tagWords(tags []lease.PageTag) string {
	var b strings.Builder
	for _, t := range tags {
		if fmt.Fprintf(&b, " %d:%d/%d", t.Page, t.Tag.Slot(), t.Tag.Generation()); t.Tag.Sealed() {
			b.WriteByte('+')
		}
	}
	return b.String()
}

// Tell replays a history and returns it in words, an action a paragraph: what happened, and what the cores said.
func Tell(p *Plan, history []uint32) ([]string, error) {
	w, err := newWorld(p)
	if err != nil {
		return nil, err
	}
	var out []string
	for i, n := range history {
		a := unpack(n)
		var log []string
		w.log = &log
		log = append(log, fmt.Sprintf("%2d  %s", i+1, w.describe(a)))
		w.do(a)
		out = append(out, strings.Join(log, "\n"))
	}
	return out, nil
}

func pack(a action) uint32 { return uint32(a.kind)<<16 | uint32(a.a)<<8 | uint32(a.b) }

func unpack(n uint32) action { return action{kind(n >> 16), uint8(n >> 8), uint8(n)} }
