package choose

import (
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/fault"
)

// Limit is what one pair, or the best of several, can hold in tokens.
type Limit struct {
	Prompt uint32 // n <= Prompt
	Total  uint32 // n + max_new <= Total
}

// of is the limit of a pair; p is nil when d computes the prompt itself.
func of(p *Worker, d Worker, m Model) Limit {
	l := Limit{Total: d.Limit}
	for _, told := range []uint32{m.Promise, d.Promised} {
		if told > 0 {
			l.Total = min(l.Total, told)
		}
	}
	l.Prompt = l.Total
	if p != nil {
		l.Prompt = p.Limit
	}
	return l
}

// holds reports whether n prompt tokens and maxNew new ones fit; maxNew is at least 1.
func (l Limit) holds(n, maxNew uint32) bool {
	return fault.Off(fault.LimitRouter) || n <= l.Prompt && uint64(n)+uint64(max(maxNew, 1)) <= uint64(l.Total)
}

// Effective is the context length that every ready pair can hold, whichever is picked: the smallest of all their
// limits. While no pair is ready it is that of the decode workers that serve alone, and 0 when there is none either.
func Effective(f Fleet, m Model) uint32 {
	var pairs, alone uint32
	ps := usable(f.Prefill, m)
	for _, d := range usable(f.Decode, m) {
		if d.SelfPrefill {
			alone = least(alone, of(nil, d, m))
		}
		for _, p := range partners(d, ps, nil) {
			pairs = least(pairs, of(&p, d, m))
		}
	}
	if pairs == 0 {
		return alone
	}
	return pairs
}

func least(sofar uint32, l Limit) uint32 {
	most := l.most()
	if sofar == 0 || most < sofar {
		return most
	}
	return sofar
}

// Request is what has to be placed.
type Request struct {
	Tokens       uint32 // n >= 1
	MaxNew       uint32 // 0: absent
	Default      uint32 // of MaxNew
	UnsplitBelow uint32 // prompts up to this many tokens may be computed by decode; 0: off
	Without      map[Pair]bool
	Only         *Pair // nil: any pair
}

// tooLong is the refusal of a request that no ready pair holds.
func tooLong(r Request, best Limit) error {
	if r.MaxNew == 0 {
		return errs.New(errs.Limit, "the prompt has %d tokens; it may have at most %d, and with at least 1 new token at most %d",
			r.Tokens, best.Prompt, best.Total)
	}
	return errs.New(errs.Limit, "the prompt has %d tokens and %d new ones are asked for, %d together; a prompt may have at most %d and both together at most %d",
		r.Tokens, r.MaxNew, uint64(r.Tokens)+uint64(r.MaxNew), best.Prompt, best.Total)
}
