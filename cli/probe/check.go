package probe

import (
	"leasehold.dev/model/canary"
	"leasehold.dev/protos/errs"
)

// Want is what must happen to a request.
type Want string

// The outcomes that can be wanted.
const (
	Echo   Want = "echo"    // served, and front, middle and end came back
	Limit  Want = "refused" // 400 context_length_exceeded, with the numbers
	NoPair Want = "no pair" // 503: the pair is not there
)

// Check is one request of a round. Tokens is the length of the prompt; canary.Answer tokens are asked for.
type Check struct {
	Name   string
	Tokens int
	Want   Want
}

// Least is the smallest limit in tokens that a gate can be run against.
const Least = 2 * (canary.MinPrompt + canary.Answer)

// Gate is what a pair must do before it serves tenants: prompt and answer together have half the limit, one less than the
// limit, the limit, and one more. A limit below Least is Invalid.
func Gate(limit int) ([]Check, error) {
	if limit < Least {
		return nil, errs.New(errs.Invalid, "a limit of %d tokens is too small for a gate, which needs %d", limit, Least)
	}
	return []Check{
		{"0.5x", limit/2 - canary.Answer, Echo},
		{"limit-1", limit - 1 - canary.Answer, Echo},
		{"limit", limit - canary.Answer, Echo},
		{"limit+1", limit + 1 - canary.Answer, Limit},
	}, nil
}

// Rest is what is asked of a pair all the time: an echo of tokens, less where the limit is lower, and a refusal.
func Rest(limit, tokens int) ([]Check, error) {
	if limit < Least || tokens < canary.MinPrompt {
		return nil, errs.New(errs.Invalid, "a limit of %d tokens, or a prompt of %d, is too small: want %d and %d", limit, tokens, Least, canary.MinPrompt)
	}
	return []Check{
		{"echo", min(tokens, limit-canary.Answer), Echo},
		{"over", limit + 1 - canary.Answer, Limit},
	}, nil
}

// Gone is a check of a pair that cannot be there: a router that serves it routes by something else than it says.
func Gone() Check { return Check{"gone pair", 2 * canary.MinPrompt, NoPair} }
