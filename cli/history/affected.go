package history

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"leasehold.dev/mesh/audit/event"
)

// Query says which responses are asked about. Zero fields ask about all.
type Query struct {
	From, To time.Time // responses that ran in between, or in part
	Pair     string    // prefill/decode
	Broker   string    // with Page: responses that used this page
	Page     uint32
}

// Use is the pages of one broker instance that a response used.
type Use struct {
	Broker, Instance string
	Pages            []uint32 // in order of number
}

// Before is another tenant whose pages a response had after it, or at the same time.
type Before struct {
	Tenant string
	Pages  int // different ones

	Cleared   int      // of Pages: cleared between
	Uncleared int      // of Pages: not cleared between, so that its data could be read
	Late      int      // of Pages: written late at some time before
	Endings   []string // how those leases had ended; "still held" among them is the worst
}

// Response is one that was asked about.
type Response struct {
	Request  string
	Tenant   string
	From, To time.Time
	Outcome  string // of the router's record; "unknown" without one
	Pairs    []string
	Uses     []Use
	Before   []Before // by tenant
	Missing  []string // what the logs should say and do not
}

// Affected lists the responses that q asks about, in the order of their first record, with the tenants whose pages they
// could have read.
func (h *History) Affected(q Query) []Response {
	var out []Response
	for _, r := range h.order {
		if one, ok := h.look(r, q); ok {
			out = append(out, one)
		}
	}
	return out
}

func (h *History) look(r *request, q Query) (Response, bool) {
	out := Response{Request: r.id, Tenant: r.tenant, Outcome: "unknown", From: r.first, To: r.last}
	if r.response != nil {
		out.Outcome, out.From, out.To = r.response.Outcome, time.UnixMilli(r.response.StartMS).UTC(), r.ended
	} else {
		out.Missing = append(out.Missing, "the router's word on how it ended")
	}
	if !q.From.IsZero() && out.To.Before(q.From) || !q.To.IsZero() && out.From.After(q.To) {
		return out, false
	}
	var mine []*stay
	for _, a := range r.admissions {
		if q.Pair != "" && a.Pair() != q.Pair {
			continue
		}
		if !slices.Contains(out.Pairs, a.Pair()) {
			out.Pairs = append(out.Pairs, a.Pair())
		}
		for _, b := range []string{a.PrefillBroker, a.DecodeBroker} {
			if b != "" && h.brokers[b] == nil {
				out.miss("the log of broker " + b)
			}
		}
		for _, t := range h.used[a.Admission] {
			for _, s := range t.stays {
				if q.Broker == "" || t.broker.name == q.Broker && s.page == q.Page {
					mine = append(mine, s)
				}
			}
		}
		if len(h.used[a.Admission]) == 0 && r.verified(a.Admission) {
			out.miss("a grant for admission " + a.Admission)
		}
	}
	if q.Pair != "" && len(out.Pairs) == 0 || q.Broker != "" && len(mine) == 0 {
		return out, false
	}
	out.Uses, out.Before = uses(mine), before(mine)
	return out, true
}

// verified says whether the router took an answer of this admission.
func (r *request) verified(admission string) bool {
	return r.response != nil && slices.ContainsFunc(r.response.Choices, func(c event.Choice) bool { return c.Admission == admission && c.VerdictsEqual })
}

func (r *Response) miss(what string) {
	if !slices.Contains(r.Missing, what) {
		r.Missing = append(r.Missing, what)
	}
}

type place struct{ broker, instance string }

func placeOf(s *stay) place { return place{s.of.broker.name, s.of.instance} }

func uses(mine []*stay) []Use {
	pages := map[place]map[uint32]bool{}
	for _, s := range mine {
		p := placeOf(s)
		if pages[p] == nil {
			pages[p] = map[uint32]bool{}
		}
		pages[p][s.page] = true
	}
	var out []Use
	for p, n := range pages {
		out = append(out, Use{p.broker, p.instance, slices.Sorted(maps.Keys(n))})
	}
	slices.SortFunc(out, func(a, b Use) int {
		return cmp.Or(strings.Compare(a.Broker, b.Broker), strings.Compare(a.Instance, b.Instance))
	})
	return out
}

// found is what was found of another tenant on one page.
type found struct{ uncleared, late bool }

type numbered struct {
	place
	page uint32
}

// before gathers the other tenants of the pages.
func before(mine []*stay) []Before {
	byTenant := map[string]map[numbered]found{}
	endings := map[string]map[string]bool{}
	for _, s := range mine {
		for _, other := range s.of.broker.stays(s) {
			if other.of.tenant == s.of.tenant || other.begun > s.begun && s.cleared != 0 && s.cleared < other.begun {
				continue
			}
			t := other.of.tenant
			if byTenant[t] == nil {
				byTenant[t], endings[t] = map[numbered]found{}, map[string]bool{}
			}
			at := numbered{placeOf(s), s.page}
			f := byTenant[t][at]
			f.uncleared = f.uncleared || other.cleared == 0 || other.cleared > s.begun
			f.late = f.late || other.late
			byTenant[t][at] = f
			endings[t][other.of.ending()] = true
		}
	}
	var out []Before
	for _, t := range slices.Sorted(maps.Keys(byTenant)) {
		b := Before{Tenant: t, Pages: len(byTenant[t]), Endings: slices.Sorted(maps.Keys(endings[t]))}
		for _, f := range byTenant[t] {
			if f.uncleared {
				b.Uncleared++
			}
			if f.late {
				b.Late++
			}
		}
		b.Cleared = b.Pages - b.Uncleared
		out = append(out, b)
	}
	return out
}

func (t *tenure) ending() string {
	switch {
	case t.ended == "":
		return "still held"
	case t.ended == "quarantined" && t.proven:
		return "quarantined and proven"
	case t.ended == "quarantined":
		return "quarantined, not proven"
	}
	return t.ended
}
