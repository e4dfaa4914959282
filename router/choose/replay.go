package choose

import (
	"leasehold.dev/protos/errs"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

// UnsplitReplay is the route of a request that is run again: decode alone, on other pages.
const UnsplitReplay Why = "unsplit:replay"

// Replay is a request that has to be run again.
type Replay struct {
	Tokens, MaxNew uint32
	Numerics       string // whose bits the result is compared with
	Decode         string // the worker that answered
	Waits          bool   // tenants' requests go first: only a worker with head-room will do
}

// Again picks a decode worker of the same numerics class to run r alone: another one than the first time when there is
// one. NotFound: no worker may run it. Exhausted: the one that should has no head-room now.
func Again(f Fleet, m Model, r Replay) (Route, error) {
	var best *Worker
	for _, d := range usable(f.Decode, m) {
		if d.Numerics != r.Numerics || r.Tokens > 1 && !d.SelfPrefill || !of(nil, d, m).holds(r.Tokens, r.MaxNew) {
			continue
		}
		better := best == nil || best.ID == r.Decode
		if best != nil && (d.ID == r.Decode) == (best.ID == r.Decode) {
			better = roomier(d, *best, r.Tokens+r.MaxNew-1)
		}
		if better && (best == nil || d.ID != r.Decode || best.ID == r.Decode) {
			best = &d
		}
	}
	if best == nil {
		return Route{}, errs.New(errs.NotFound, "no decode worker of class %q may compute %d tokens and %d new ones alone", r.Numerics, r.Tokens, r.MaxNew)
	}
	if r.Waits && !idle(*best, r.Tokens+r.MaxNew-1) {
		return Route{}, errs.New(errs.Exhausted, "decode worker %s has %d of %d pages free, %d tokens queued and %d sequences", best.ID, best.Free, best.Pages, best.Queued, best.Sequences)
	}
	return Route{Decode: *best, Mover: meshv1.Mover_MOVER_NONE, Why: UnsplitReplay, MaxNew: r.MaxNew}, nil
}

// most sequences beside which a replay may run.
const quiet = 1

// idle reports whether d can take rows tokens and nobody would feel it: nothing waits, at most one sequence runs, and a
// quarter of the pool stays free.
func idle(d Worker, rows uint32) bool {
	return d.Queued == 0 && d.Sequences <= quiet && d.Open <= quiet && int64(d.Free)-pages(rows) >= int64(d.Pages/4)
}
