package choose

import (
	"leasehold.dev/protos/errs"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

// Why says what kind of route was taken. The set is closed: it is a metric label and a response header.
type Why string

// The kinds of route.
const (
	SplitLocal       Why = "split:local"
	SplitSHM         Why = "split:shm"
	SplitUCX         Why = "split:ucx"
	SplitGRPC        Why = "split:grpc"
	UnsplitSingle    Why = "unsplit:single-token" // one prompt token: nothing to move
	UnsplitShort     Why = "unsplit:short"
	UnsplitNoPrefill Why = "unsplit:no-prefill"
	pageTokens           = 64
	unspecified          = meshv1.Mover_MOVER_UNSPECIFIED
)

var splits = map[meshv1.Mover]Why{
	meshv1.Mover_MOVER_LOCAL: SplitLocal, meshv1.Mover_MOVER_SHM: SplitSHM,
	meshv1.Mover_MOVER_UCX: SplitUCX, meshv1.Mover_MOVER_GRPC: SplitGRPC,
}

// Route is fixed for the life of an admission.
type Route struct {
	Prefill *Worker // nil: unsplit
	Decode  Worker
	Mover   meshv1.Mover
	Why     Why
	MaxNew  uint32 // as admitted
}

// Pair is the route's name for [Request.Without].
func (r Route) Pair() Pair {
	p := Pair{Decode: r.Decode.ID}
	if r.Prefill != nil {
		p.Prefill = r.Prefill.ID
	}
	return p
}

// option is a decode worker and the prefill workers that it can be paired with; none when unsplit.
type option struct {
	d  Worker
	ps []Worker
}

// Plan picks a route, or says why there is none: Limit when no ready pair could ever hold the request, Unavailable
// when no pair is ready. A full pool is no reason here: the broker knows best, and answers Exhausted. pick(n) returns
// a random number below n.
func Plan(f Fleet, m Model, r Request, pick func(int) int) (Route, error) {
	if r.Only != nil {
		f, r = only(f, r)
	}
	options, why := candidates(f, m, r)
	if len(options) == 0 {
		_, reason := Ready(f, m)
		if reason == "" {
			reason = "no other pair of workers is ready"
		}
		return Route{}, errs.New(errs.Unavailable, "%s", reason)
	}
	fit, best := filter(options, m, r)
	if len(fit) == 0 {
		return Route{}, tooLong(r, best)
	}
	maxNew := r.MaxNew
	if maxNew == 0 {
		maxNew = min(r.Default, best.Total-r.Tokens)
		fit, _ = filter(options, m, Request{Tokens: r.Tokens, MaxNew: maxNew})
	}
	o := better(fit, pick, func(a, b option) bool { return roomier(a.d, b.d, r.Tokens+maxNew-1) })
	out := Route{Decode: o.d, Mover: meshv1.Mover_MOVER_NONE, Why: why, MaxNew: maxNew}
	if len(o.ps) > 0 {
		p := better(o.ps, pick, func(a, b Worker) bool { return idler(a, b, r.Tokens-1) })
		out.Prefill, out.Mover = &p, Mover(p, o.d)
		out.Why = splits[out.Mover]
	}
	return out, nil
}

// only leaves the one pair that r names. A short prompt goes through it too, and so does one that decode could do alone;
// one of a single token has nothing to move.
func only(f Fleet, r Request) (Fleet, Request) {
	r.UnsplitBelow = 0
	named := func(ws []Worker, id string) (out []Worker) {
		for _, w := range ws {
			if w.ID == id {
				out = append(out, w)
			}
		}
		return out
	}
	f = Fleet{Prefill: named(f.Prefill, r.Only.Prefill), Decode: named(f.Decode, r.Only.Decode)}
	if r.Only.Prefill != "" {
		for i := range f.Decode {
			f.Decode[i].SelfPrefill = false
		}
	}
	return f, r
}

// candidates are the ways to serve r, limits aside, and the reason if they are unsplit.
func candidates(f Fleet, m Model, r Request) ([]option, Why) {
	var single, self, split []option
	ps := usable(f.Prefill, m)
	for _, d := range usable(f.Decode, m) {
		alone := !r.Without[Pair{Decode: d.ID}]
		if alone {
			single = append(single, option{d: d})
		}
		if alone && d.SelfPrefill {
			self = append(self, option{d: d})
		}
		if with := partners(d, ps, r.Without); len(with) > 0 {
			split = append(split, option{d, with})
		}
	}
	switch {
	case r.Tokens == 1:
		return single, UnsplitSingle
	case r.Tokens <= r.UnsplitBelow && len(self) > 0:
		return self, UnsplitShort
	case len(split) > 0 || retries(r):
		return split, ""
	}
	return self, UnsplitNoPrefill
}

// retries reports whether a pair was lost already. Its request goes to another pair or fails: decode alone would be a
// different route for the same request.
func retries(r Request) bool {
	for p, lost := range r.Without {
		if lost && p.Prefill != "" {
			return true
		}
	}
	return false
}

// filter keeps what holds r, and returns the largest limits of all options for the refusal's text.
func filter(options []option, m Model, r Request) (fit []option, best Limit) {
	grow := func(l Limit) bool {
		best = Limit{max(best.Prompt, l.Prompt), max(best.Total, l.Total)}
		return l.holds(r.Tokens, r.MaxNew)
	}
	var most uint32 // Total of what fits
	for _, o := range options {
		if len(o.ps) == 0 {
			if l := of(nil, o.d, m); grow(l) {
				fit, most = append(fit, o), max(most, l.Total)
			}
			continue
		}
		var ps []Worker
		for _, p := range o.ps {
			if l := of(&p, o.d, m); grow(l) {
				ps, most = append(ps, p), max(most, l.Total)
			}
		}
		if len(ps) > 0 {
			fit = append(fit, option{o.d, ps})
		}
	}
	if len(fit) > 0 {
		best.Total = most
	}
	return fit, best
}

// better is the better of two random ones.
func better[T any](of []T, pick func(int) int, less func(a, b T) bool) T {
	i := pick(len(of))
	if len(of) == 1 {
		return of[i]
	}
	j := pick(len(of) - 1)
	if j >= i {
		j++
	}
	if less(of[j], of[i]) {
		return of[j]
	}
	return of[i]
}

func pages(tokens uint32) int64 { return (int64(tokens) + pageTokens - 1) / pageTokens }

// roomier reports whether a has more head-room than b for a sequence of rows tokens: free pages that are left, then
// fewer sequences.
func roomier(a, b Worker, rows uint32) bool {
	left := func(w Worker) int64 { return int64(w.Free) - pages(rows) - int64(w.Open) }
	if la, lb := left(a), left(b); la != lb {
		return la > lb
	}
	return a.Sequences < b.Sequences
}

// idler reports whether a will have computed rows tokens sooner than b: room first, then the shorter queue.
func idler(a, b Worker, rows uint32) bool {
	fits := func(w Worker) bool { return int64(w.Free) >= pages(rows) }
	if fa, fb := fits(a), fits(b); fa != fb {
		return fa
	}
	if a.Queued != b.Queued {
		return a.Queued < b.Queued
	}
	if a.Open != b.Open {
		return a.Open < b.Open
	}
	return a.Free > b.Free
}
