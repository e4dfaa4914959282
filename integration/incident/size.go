package incident

import (
	"leasehold.dev/model/canary"
	"leasehold.dev/protos/errs"
)

const pageTokens = 64

// The incident's own numbers, in tokens.
const (
	prefillPool = 681_280
	promise     = 1_048_576
	answered    = 662_162 // the longest prompt whose marker came back
	wrong       = 700_168 // the prompt that was answered with something else
)

// Tenants: four who were there before, and the one who asks.
const (
	before = 4
	asker  = before
	fills  = 28 // prompts of those before, all alive at once
)

// size is a run's numbers. Pools are in pages, the rest in tokens.
type size struct {
	scale                     int
	prefillPages, decodePages int
	limit                     int // that prefill's pool gives
	promise                   int
	served, refused           []int // prompts
	wrong                     int
	fill                      int // prompt of one of those before
}

// sizeOf divides everything by scale, which is 1 to 64.
func sizeOf(scale int) (size, error) {
	if scale < 1 || scale > 64 {
		return size{}, errs.New(errs.Invalid, "incident: scale 1/%d, want 1/1 to 1/64", scale)
	}
	s := size{scale: scale, prefillPages: prefillPool / pageTokens / scale, decodePages: promise / pageTokens / scale,
		promise: promise / scale, wrong: wrong / scale}
	s.limit = s.prefillPages * pageTokens
	s.served = []int{answered / scale, s.limit}
	s.refused = []int{s.limit + 1, s.wrong, s.promise}
	s.fill = s.decodePages/fills*pageTokens - canary.Answer
	return s, nil
}
