package flow

import (
	"context"
	"slices"

	"leasehold.dev/mesh/boundary"
	"leasehold.dev/router/choose"
)

// afterwards are the detectors that look at an admission when the brokers' records are here: package witness.
var afterwards = []look{{boundary.P3, boundary.Reconciler}, {boundary.P4, boundary.Reconciler}}

type look struct {
	property boundary.Property
	detector boundary.Detector
}

// perPair are the detectors that each finished admission of a pair is a look of.
var perPair = []look{{boundary.P4, boundary.Verdict}, {boundary.P4, boundary.Refusal}, {boundary.P5, boundary.Refusal}}

// agreed says that both halves took what was admitted, and that their verdicts were compared.
func (r *Runner) agreed(route choose.Route) {
	pair := boundary.Pair(route.Pair().Prefill, route.Decode.ID)
	for _, l := range perPair {
		r.Boundary.Observed(l.property, l.detector, pair)
	}
}

// Expect keeps the clocks of the detectors that requests are looks of: they run for every pair that can be picked, from the
// moment that it can, so that a pair through which nothing comes is noticed. It returns when ctx ends.
func (r *Runner) Expect(ctx context.Context) {
	have := map[choose.Pair]bool{}
	for {
		changed := r.Fleet.Changed()
		listed := map[choose.Pair]bool{}
		f := r.Fleet.Snapshot()
		for _, p := range choose.Pairs(f, r.Model) {
			if have[p] = true; p.Prefill != "" {
				for _, l := range slices.Concat(perPair, afterwards) {
					r.Boundary.Expect(l.property, l.detector, boundary.Pair(p.Prefill, p.Decode))
				}
			}
		}
		for _, d := range f.Decode {
			listed[choose.Pair{Decode: d.ID}] = true
			for _, p := range f.Prefill {
				listed[choose.Pair{Prefill: p.ID, Decode: d.ID}] = true
			}
		}
		for p := range have {
			if !listed[p] {
				delete(have, p)
				r.Boundary.Forget(boundary.Pair(p.Prefill, p.Decode))
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
