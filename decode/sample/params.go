package sample

import (
	"math"

	"leasehold.dev/protos/errs"
)

// MaxTop is the most alternatives that may be asked for at a position.
const MaxTop = 20

// Params of a request. Zero values turn each off; the zero Params is greedy.
type Params struct {
	Temperature float32 // 0: greedy
	TopP        float32 // 0 or 1: off
	TopK        uint32
	MinP        float32
	Frequency   float32
	Presence    float32
	Repetition  float32 // 0 or 1: off
	Bias        map[int32]float32
	Seed        uint64
	Logprobs    bool
	Top         int // alternatives to report, 0..MaxTop; needs Logprobs
}

// Check refuses what cannot be computed with, by name. It is wider than what an API may allow.
func (p Params) Check(vocab int) error {
	for _, r := range []struct {
		name           string
		v, least, most float32
		offWhenZero    bool
	}{
		{name: "temperature", v: p.Temperature, least: 0, most: 100},
		{name: "top_p", v: p.TopP, least: 0, most: 1},
		{name: "min_p", v: p.MinP, least: 0, most: 1},
		{name: "frequency_penalty", v: p.Frequency, least: -100, most: 100},
		{name: "presence_penalty", v: p.Presence, least: -100, most: 100},
		{name: "repetition_penalty", v: p.Repetition, least: 0.01, most: 100, offWhenZero: true},
	} {
		if r.offWhenZero && r.v == 0 {
			continue
		}
		if !(r.v >= r.least && r.v <= r.most) { // NaN too
			return errs.New(errs.Invalid, "%s is %v, want %v to %v", r.name, r.v, r.least, r.most)
		}
	}
	if p.Top < 0 || p.Top > MaxTop || p.Top > 0 && !p.Logprobs {
		return errs.New(errs.Invalid, "top_logprobs is %d with logprobs %v, want 0 to %d, and logprobs for more than 0", p.Top, p.Logprobs, MaxTop)
	}
	for id, b := range p.Bias {
		if id < 0 || int(id) >= vocab {
			return errs.New(errs.Invalid, "logit_bias names token %d, the vocabulary has %d", id, vocab)
		}
		if !(math.Abs(float64(b)) <= 1000) {
			return errs.New(errs.Invalid, "logit_bias of token %d is %v, want -1000 to 1000", id, b)
		}
	}
	return nil
}

func (p Params) repeats() bool  { return p.Repetition != 0 && p.Repetition != 1 }
func (p Params) counts() bool   { return p.Frequency != 0 || p.Presence != 0 }
func (p Params) adjusts() bool  { return len(p.Bias) > 0 || p.repeats() || p.counts() }
func (p Params) nucleus() bool  { return p.TopP > 0 && p.TopP < 1 }
func (p Params) topK(n int) int { return min(int(p.TopK), n) }
