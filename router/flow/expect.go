package flow

import (
	"context"
	"slices"
	"time"

	"leasehold.dev/mesh/boundary"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/router/choose"
)

// afterwards are the detectors that not every request is a look of: package witness's, when the brokers' records are here, and
// package toofast's, for prompts of some length.
var afterwards = []look{{boundary.P1, boundary.TooFast}, {boundary.P3, boundary.Reconciler}, {boundary.P4, boundary.Reconciler}}

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

// judge flags a prompt that P sealed faster than it can compute: the answer goes out, and somebody is told.
func (r *Runner) judge(job Job, route choose.Route, v *meshv1.PrefillVerdict) {
	if route.Prefill == nil {
		return
	}
	span := time.Duration(v.GetSpanUs()) * time.Microsecond
	fast, known := route.Prefill.Warm.Judge(v.GetRows(), span)
	if !known {
		return
	}
	r.Boundary.Observed(boundary.P1, boundary.TooFast, boundary.Pair(route.Prefill.ID, route.Decode.ID))
	if fast {
		r.Boundary.Incident(boundary.P1, boundary.TooFast, "request "+job.Request)
		r.Log.Error("incident: a prompt was sealed faster than it can be computed", "request", job.Request, "prefill", route.Prefill.ID,
			"rows", v.GetRows(), "span", span.String(), "expected", route.Prefill.Warm.Expected(v.GetRows()).String())
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
