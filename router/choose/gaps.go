package choose

import "fmt"

// Gap is a promise above a derived limit: property P5 does not hold.
type Gap struct {
	Service, ID       string // of the worker; the router's own promise has ID ""
	Promised, Derived uint32 // tokens
}

func (g Gap) String() string {
	if g.ID == "" {
		return fmt.Sprintf("the router promises %d tokens, the largest pair can hold %d", g.Promised, g.Derived)
	}
	return fmt.Sprintf("%s worker %s promises %d tokens, it derived %d", g.Service, g.ID, g.Promised, g.Derived)
}

// Gaps compares every promise with what was derived: each listed worker's own, ready or not, and the router's with the
// largest pair that is ready. known is false while a listed worker has not said both of its numbers, or no pair is ready:
// then nobody can tell that all is well, though a gap that shows is one.
func Gaps(f Fleet, m Model) (gaps []Gap, known bool) {
	known = true
	for _, s := range []struct {
		name    string
		workers []Worker
	}{{"prefill", f.Prefill}, {"decode", f.Decode}} {
		for _, w := range s.workers {
			switch {
			case w.Limit == 0 || w.Promised == 0:
				known = false
			case w.Promised > w.Limit:
				gaps = append(gaps, Gap{s.name, w.ID, w.Promised, w.Limit})
			}
		}
	}
	most := Largest(f, m)
	if most == 0 {
		return gaps, false
	}
	if m.Promise > most {
		gaps = append(gaps, Gap{Service: "router", Promised: m.Promise, Derived: most})
	}
	return gaps, known
}

// Largest is the longest request that some ready pair can hold, or decode alone where it may be alone; 0 while none is ready.
func Largest(f Fleet, m Model) uint32 {
	m.Promise = 0 // what is derived, whatever is promised here
	var most uint32
	ps := usable(f.Prefill, m)
	for _, d := range usable(f.Decode, m) {
		if d.SelfPrefill && len(ps) == 0 {
			most = max(most, of(nil, d, m).most())
		}
		for _, p := range partners(d, ps, nil) {
			most = max(most, of(&p, d, m).most())
		}
	}
	return most
}

// PairLimit is the longest request that p and d can hold together, new tokens included.
func PairLimit(p, d Worker, m Model) uint32 { return of(&p, d, m).most() }

// most is what both numbers allow: a prompt may fill all of a request but its new tokens.
func (l Limit) most() uint32 { return min(l.Prompt, l.Total) }

// Pairs is every way to serve that is ready now: each prefill and decode worker that fit together, and decode alone.
func Pairs(f Fleet, m Model) []Pair {
	var out []Pair
	ps := usable(f.Prefill, m)
	for _, d := range usable(f.Decode, m) {
		for _, p := range partners(d, ps, nil) {
			out = append(out, Pair{p.ID, d.ID})
		}
		out = append(out, Pair{Decode: d.ID})
	}
	return out
}
