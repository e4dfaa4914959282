package canary

import (
	"fmt"
	"math/rand/v2"
)

const (
	part = 8
	// Answer is how many tokens an echo has: 8 of the front, 8 of the middle, 8 of the end.
	Answer = 3 * part

	front = 1 + part + 1 // A f1..f8 m1
	block = part + 1     // m1..m8 b1, and b1..b8 A
	// MinPrompt is the shortest prompt: its parts and a filler between each.
	MinPrompt = front + 1 + block + 1 + block

	pageTokens = 64
)

// Echo is a prompt and the only right answer to it, greedily sampled.
type Echo struct {
	Tenant int
	Tokens []int32 // the prompt
	Want   []int32 // the answer; Answer tokens
	Middle int     // where the middle part begins
}

// New is a prompt of so many tokens in a tenant's words. The seed decides the markers, their order, the fillers, and
// where the middle is: on neither the first nor the last page of 64 tokens, where there are others.
func New(tenant, tokens int, seed uint64) (Echo, error) {
	if tenant < 0 || tenant >= Tenants {
		return Echo{}, fmt.Errorf("canary: tenant %d of %d", tenant, Tenants)
	}
	if tokens < MinPrompt {
		return Echo{}, fmt.Errorf("canary: a prompt of %d tokens: want at least %d", tokens, MinPrompt)
	}
	rng := rand.New(rand.NewPCG(seed, uint64(tenant)))
	e := Echo{Tenant: tenant, Tokens: make([]int32, tokens), Middle: middle(rng, tokens)}
	for _, i := range rng.Perm(Markers)[:Answer] {
		e.Want = append(e.Want, marker(tenant, i))
	}
	for i := range e.Tokens {
		e.Tokens[i] = marker(tenant, Markers+rng.IntN(PerTenant-Markers))
	}
	e.Tokens[0], e.Tokens[tokens-1] = A, A
	copy(e.Tokens[1:], e.Want[:part+1])
	copy(e.Tokens[e.Middle:], e.Want[part:2*part+1])
	copy(e.Tokens[tokens-block:], e.Want[2*part:])
	return e, nil
}

func middle(rng *rand.Rand, tokens int) int {
	least, most := front+1, tokens-block-1-block
	inner, outer := pageTokens, (tokens-1)/pageTokens*pageTokens-block
	if least, outer = max(least, inner), min(most, outer); least <= outer {
		return least + rng.IntN(outer-least+1)
	}
	least = front + 1
	return least + rng.IntN(most-least+1)
}

// Verdict of an answer.
type Verdict struct {
	Front, Middle, End bool         // each part came back as it was
	Own                int          // tokens that are right, in their places
	Foreign            [Tenants]int // tokens by the other tenant whose they are
	Other              int          // tokens that are wrong, and of no other tenant
	Missing            int          // places without a token
}

// Judge compares an answer with what it must be. Tokens after the last place count as wrong.
func Judge(e Echo, got []int32) Verdict {
	var v Verdict
	right := [3]int{}
	for i, id := range got {
		owner, owned := Owner(id)
		switch {
		case i < len(e.Want) && id == e.Want[i]:
			v.Own++
			right[i/part]++
		case owned && owner != e.Tenant:
			v.Foreign[owner]++
		default:
			v.Other++
		}
	}
	v.Missing = max(0, len(e.Want)-len(got))
	v.Front, v.Middle, v.End = right[0] == part, right[1] == part, right[2] == part
	return v
}

// Exact reports whether the answer is the right one.
func (v Verdict) Exact() bool {
	return v.Front && v.Middle && v.End && v.Other == 0 && v.Missing == 0 && v.Leaked() == 0
}

// Leaked is the number of tokens that are another tenant's.
func (v Verdict) Leaked() (n int) {
	for _, k := range v.Foreign {
		n += k
	}
	return n
}

// Of lists the tenants whose tokens came out, in order.
func (v Verdict) Of() (tenants []int) {
	for tenant, k := range v.Foreign {
		if k > 0 {
			tenants = append(tenants, tenant)
		}
	}
	return tenants
}

// String is the verdict in a few words, without the answer.
func (v Verdict) String() string {
	if v.Exact() {
		return fmt.Sprintf("exact, %d of %d", v.Own, Answer)
	}
	return fmt.Sprintf("front %s, middle %s, end %s: %d of %d right, %d foreign, %d other, %d missing", word(v.Front), word(v.Middle),
		word(v.End), v.Own, Answer, v.Leaked(), v.Other, v.Missing)
}

func word(ok bool) string {
	if ok {
		return "right"
	}
	return "WRONG"
}
