package history

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"leasehold.dev/mesh/audit"
	"leasehold.dev/mesh/audit/event"
	"leasehold.dev/protos/errs"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// script feeds a history with lines, each a second after the one before. The words are
//
//	start BROKER INSTANCE                 grant BROKER LEASE TENANT ADMISSION PAGES
//	own BROKER LEASE TENANT PAGES         released|handed-over|quarantined|proven BROKER LEASE
//	zero BROKER PAGES                     late BROKER PAGE
//	admit|replay REQUEST TENANT ADMISSION P/PB D/DB    respond REQUEST TENANT OUTCOME ADMISSION...
func script(t *testing.T, text string) *History {
	t.Helper()
	h := &History{}
	n := 0
	for line := range strings.Lines(text) {
		w := strings.Fields(line)
		if len(w) == 0 {
			continue
		}
		n++
		e, instance := parse(t, w, n)
		if err := h.Add(record(t, n, instance, e)); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	return h
}

func record(t *testing.T, n int, instance string, e audit.Event) *audit.Record {
	t.Helper()
	fields, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	r := &audit.Record{}
	r.Seq, r.Time, r.Instance, r.Kind, r.Fields = uint64(n), noon.Add(time.Duration(n)*time.Second), instance, e.Kind(), fields
	return r
}

func parse(t *testing.T, w []string, n int) (audit.Event, string) {
	t.Helper()
	switch w[0] {
	case "start":
		return event.BrokerStarted{Broker: w[1], Instance: w[2]}, w[1]
	case "grant":
		return event.LeaseGranted{Lease: w[2], Tenant: w[3], Admission: w[4], Pages: pages(t, w[5:])}, w[1]
	case "own":
		return event.LeaseOwned{Lease: w[2], Tenant: w[3], Pages: pages(t, w[4:])}, w[1]
	case "released", "handed-over", "quarantined", "proven":
		return event.Lease{As: "lease." + w[0], Lease: w[2]}, w[1]
	case "zero":
		return event.PagesZeroed{Pages: pages(t, w[2:])}, w[1]
	case "late":
		return event.LateWrite{Page: pages(t, w[2:])[0].Number}, w[1]
	case "admit", "replay":
		p, pb, _ := strings.Cut(w[4], "/")
		d, db, _ := strings.Cut(w[5], "/")
		return event.Admission{Request: w[1], Tenant: w[2], Admission: w[3], Prefill: p, PrefillBroker: pb, Decode: d, DecodeBroker: db, Internal: w[0] == "replay"}, "router-0"
	case "respond":
		r := event.Response{Request: w[1], Tenant: w[2], Outcome: w[3], StartMS: noon.Add(time.Duration(n-1) * time.Second).UnixMilli()}
		for _, a := range w[4:] {
			r.Choices = append(r.Choices, event.Choice{Admission: a, VerdictsEqual: true})
		}
		return r, "router-0"
	}
	t.Fatalf("no such word: %s", w[0])
	return nil, ""
}

func pages(t *testing.T, w []string) event.Pages {
	t.Helper()
	var out []uint32
	for _, s := range w {
		var n uint32
		if _, err := fmt.Sscan(s, &n); err != nil {
			t.Fatal(err)
		}
		out = append(out, n)
	}
	return event.Numbered(out)
}

// say is one line a response: what tests compare.
func say(all []Response) string {
	var out []string
	for _, r := range all {
		text := r.Request + " " + r.Tenant + " " + r.Outcome
		for _, u := range r.Uses {
			text += fmt.Sprintf(" %s/%s:%v", u.Broker, u.Instance, u.Pages)
		}
		for _, b := range r.Before {
			text += fmt.Sprintf("; %s %d pages, %d cleared, %d not, %d late (%s)", b.Tenant, b.Pages, b.Cleared, b.Uncleared, b.Late, strings.Join(b.Endings, ", "))
		}
		for _, m := range r.Missing {
			text += "; missing " + m
		}
		out = append(out, text)
	}
	return strings.Join(out, "\n")
}

func TestWhoseData(t *testing.T) {
	for _, c := range []struct{ what, script, want string }{
		{"pages that nobody had before", `
			start bd i1
			admit r1 a adm1 / d/bd
			grant bd l1 a adm1 1 2
			respond r1 a ok adm1`,
			"r1 a ok bd/i1:[1 2]"},
		{"another tenant's, cleared in between", `
			start bd i1
			grant bd l0 b adm0 2 3
			released bd l0
			zero bd 2 3
			admit r1 a adm1 / d/bd
			grant bd l1 a adm1 1 2
			respond r1 a ok adm1`,
			"r1 a ok bd/i1:[1 2]; b 1 pages, 1 cleared, 0 not, 0 late (released)"},
		{"one's own", `
			start bd i1
			grant bd l0 a adm0 2 3
			released bd l0
			admit r1 a adm1 / d/bd
			grant bd l1 a adm1 1 2
			respond r1 a ok adm1`,
			"r1 a ok bd/i1:[1 2]"},
		{"another tenant's, never cleared", `
			start bd i1
			grant bd l0 b adm0 2
			quarantined bd l0
			admit r1 a adm1 / d/bd
			grant bd l1 a adm1 2
			respond r1 a ok adm1`,
			"r1 a ok bd/i1:[2]; b 1 pages, 0 cleared, 1 not, 0 late (quarantined, not proven)"},
		{"cleared only after the response had it", `
			start bd i1
			grant bd l0 b adm0 2
			released bd l0
			admit r1 a adm1 / d/bd
			grant bd l1 a adm1 2
			zero bd 2
			respond r1 a ok adm1`,
			"r1 a ok bd/i1:[2]; b 1 pages, 0 cleared, 1 not, 0 late (released)"},
		{"written late", `
			start bd i1
			grant bd l0 b adm0 2
			quarantined bd l0
			proven bd l0
			late bd 2
			zero bd 2
			admit r1 a adm1 / d/bd
			grant bd l1 a adm1 2
			respond r1 a ok adm1`,
			"r1 a ok bd/i1:[2]; b 1 pages, 1 cleared, 0 not, 1 late (quarantined and proven)"},
		{"two owners at once, which must not be", `
			start bd i1
			admit r1 a adm1 / d/bd
			grant bd l1 a adm1 2
			grant bd l0 b adm0 2
			respond r1 a ok adm1`,
			"r1 a ok bd/i1:[2]; b 1 pages, 0 cleared, 1 not, 0 late (still held)"},
		{"those who came later, after a clearing", `
			start bd i1
			admit r1 a adm1 / d/bd
			grant bd l1 a adm1 2
			respond r1 a ok adm1
			released bd l1
			zero bd 2
			grant bd l0 b adm0 2`,
			"r1 a ok bd/i1:[2]"},
		{"a pool that began anew", `
			start bd i1
			grant bd l0 b adm0 2
			start bd i2
			admit r1 a adm1 / d/bd
			grant bd l1 a adm1 2
			respond r1 a ok adm1`,
			"r1 a ok bd/i2:[2]"},
		{"both halves, and several before", `
			start bp i1
			start bd i2
			grant bp l0 b adm0 7
			released bp l0
			zero bp 7
			grant bd l9 c adm9 2 1
			released bd l9
			zero bd 1
			admit r1 a adm1 p/bp d/bd
			grant bd l1 a adm1 1 2
			grant bp l2 a adm1 7
			respond r1 a ok adm1`,
			"r1 a ok bd/i2:[1 2] bp/i1:[7]; b 1 pages, 1 cleared, 0 not, 0 late (released); c 2 pages, 1 cleared, 1 not, 0 late (released)"},
		{"a handover in one pool", `
			start b i1
			grant b l0 b adm0 1
			released b l0
			zero b 1
			admit r1 a adm1 p/b d/b
			grant b l1 a adm1 5
			grant b l2 a adm1 1
			handed-over b l2
			own b l1 a 1 5
			respond r1 a ok adm1
			released b l1
			zero b 1 5
			admit r2 c adm2 / d/b
			grant b l3 c adm2 1 5
			respond r2 c ok adm2`,
			"r1 a ok b/i1:[1 5]; b 1 pages, 1 cleared, 0 not, 0 late (released)\n" +
				"r2 c ok b/i1:[1 5]; a 2 pages, 2 cleared, 0 not, 0 late (handed over, released); b 1 pages, 1 cleared, 0 not, 0 late (released)"},
		{"two attempts of one request", `
			start bd i1
			admit r1 a adm1 / d/bd
			grant bd l1 a adm1 1
			admit r1 a adm2 / d/bd
			grant bd l2 a adm2 2
			respond r1 a ok adm2`,
			"r1 a ok bd/i1:[1 2]"},
		{"a request that was refused", `
			respond r1 a refused`,
			"r1 a refused"},
		{"a router that did not live to say", `
			start bd i1
			admit r1 a adm1 / d/bd
			grant bd l1 a adm1 1`,
			"r1 a unknown bd/i1:[1]; missing the router's word on how it ended"},
		{"a replay, whose answer goes to nobody", `
			start bd i1
			replay r1 a adm1 / d/bd
			grant bd l1 a adm1 1`,
			""},
		{"a broker without a log", `
			start bd i1
			admit r1 a adm1 p/bp d/bd
			grant bd l1 a adm1 1
			respond r1 a ok adm1`,
			"r1 a ok bd/i1:[1]; missing the log of broker bp"},
		{"an answer without a grant", `
			start bd i1
			admit r1 a adm1 / d/bd
			respond r1 a ok adm1`,
			"r1 a ok; missing a grant for admission adm1"},
		{"a log that begins in the midst of an instance", `
			released bd l7
			zero bd 1
			admit r1 a adm1 / d/bd
			grant bd l1 a adm1 1
			respond r1 a ok adm1`,
			"r1 a ok bd/unknown:[1]"},
	} {
		if got := say(script(t, c.script).Affected(Query{})); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.what, got, c.want)
		}
	}
}

func TestQueries(t *testing.T) {
	h := script(t, `
		start bd i1
		grant bd l0 b adm0 1 2
		released bd l0
		admit r1 a adm1 p/bd d/bd
		grant bd l1 a adm1 1
		respond r1 a ok adm1
		released bd l1
		zero bd 1
		admit r2 c adm2 / d/bd
		grant bd l2 c adm2 1 2
		respond r2 c ok adm2`) // r1 ran in seconds 5 to 6, r2 in 10 to 11
	at := func(s int) time.Time { return noon.Add(time.Duration(s) * time.Second) }
	for _, c := range []struct {
		what string
		q    Query
		want string
	}{
		{"all", Query{}, "r1 r2"},
		{"from before", Query{From: at(4)}, "r1 r2"},
		{"from the end of the first", Query{From: at(6)}, "r1 r2"},
		{"after the first", Query{From: at(7)}, "r2"},
		{"until between", Query{To: at(8)}, "r1"},
		{"until the beginning of the second", Query{To: at(10)}, "r1 r2"},
		{"in between", Query{From: at(7), To: at(9)}, ""},
		{"a pair", Query{Pair: "p/d"}, "r1"},
		{"no prefill", Query{Pair: "/d"}, "r2"},
		{"another pair", Query{Pair: "p/e"}, ""},
		{"a page of both", Query{Broker: "bd", Page: 1}, "r1 r2"},
		{"a page of one", Query{Broker: "bd", Page: 2}, "r2"},
		{"a page of none", Query{Broker: "bd", Page: 3}, ""},
		{"a page of another broker", Query{Broker: "bp", Page: 1}, ""},
	} {
		var got []string
		for _, r := range h.Affected(c.q) {
			got = append(got, r.Request)
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s: %q, want %q", c.what, s, c.want)
		}
	}
	if got := say(h.Affected(Query{Broker: "bd", Page: 2})); got != "r2 c ok bd/i1:[2]; b 1 pages, 0 cleared, 1 not, 0 late (released)" {
		t.Errorf("of one page: %s", got)
	}
}

func TestAddRefuses(t *testing.T) {
	h := script(t, "start bd i1\ngrant bd l1 a adm1 1")
	bad := record(t, 9, "bd", event.LeaseGranted{Lease: "l1", Tenant: "b", Admission: "adm2"})
	if err := h.Add(bad); errs.KindOf(err) != errs.Invalid {
		t.Errorf("a lease granted twice: %v, want invalid", err)
	}
	unknown := record(t, 10, "bd", event.Retry{})
	unknown.Kind = "something.else"
	if err := h.Add(unknown); errs.KindOf(err) != errs.Invalid {
		t.Errorf("an unknown kind: %v, want invalid", err)
	}
	own := record(t, 11, "bd", event.Retry{})
	own.Kind = audit.KindOpened
	if err := h.Add(own); err != nil {
		t.Errorf("the log's own record: %v", err)
	}
}
