package bar

import (
	"context"
	"fmt"
	"strings"

	"leasehold.dev/integration/explore"
)

// runExplore searches every plan, and looks for every seeded bug.
func runExplore(ctx context.Context, e *Env) (Result, error) {
	r := Result{Met: true, Figures: map[string]any{}}
	var states, transitions, violations, depth int
	for _, p := range explore.Plans() {
		f, err := explore.Search(ctx, &p, true)
		if err != nil {
			return r, fmt.Errorf("%s: %w", p.Name, err)
		}
		states, transitions, depth = states+f.States, transitions+f.Transitions, max(depth, f.Depth)
		e.sayf("explore: %-28s %d upsets: %7d states, %7d transitions, depth %2d%s, %6d states with a success, %6d with a quarantine, %.1f s",
			p.Name, p.Upsets, f.States, f.Transitions, f.Depth, toTheEnd(f), f.Succeeded, f.Quarantined, f.Took.Seconds())
		if f.Violation != nil {
			violations++
			e.sayf("explore: %s: %v", p.Name, f.Violation)
			if err := e.tell(&p, f); err != nil {
				return r, err
			}
		}
		r.Met = r.Met && (f.Complete || p.Depth > 0 && f.Depth == p.Depth)
	}
	found, lengths, err := e.seeded(ctx)
	if err != nil {
		return r, err
	}
	seeds := len(explore.Seeds())
	r.Figures["states"], r.Figures["transitions"], r.Figures["depth"], r.Figures["violations"] = states, transitions, depth, violations
	r.Figures["seeded"], r.Figures["trace lengths"] = fmt.Sprintf("%d/%d", found, seeds), lengths
	r.Met = r.Met && violations == 0 && found == seeds && seeds >= 5 && states >= 300_000
	return r, nil
}

func toTheEnd(f explore.Found) string {
	if f.Complete {
		return " (all)"
	}
	return ""
}

// seeded looks for each bug, and prints the history that shows it.
func (e *Env) seeded(ctx context.Context) (found int, lengths map[string]int, err error) {
	lengths = map[string]int{}
	for _, p := range explore.Seeds() {
		f, err := explore.Search(ctx, &p, false)
		if err != nil {
			return found, lengths, fmt.Errorf("%v: %w", p.Bug, err)
		}
		if f.Violation == nil {
			e.sayf("explore: seeded %q: NOT FOUND in %d states", p.Bug, f.States)
			continue
		}
		found++
		lengths[p.Bug.String()] = len(f.History)
		e.sayf("explore: seeded %q: found after %d states by %d actions: %v", p.Bug, f.States, len(f.History), f.Violation)
		if err := e.tell(&p, f); err != nil {
			return found, lengths, err
		}
	}
	return found, lengths, nil
}

func (e *Env) tell(p *explore.Plan, f explore.Found) error {
	h, err := explore.Tell(p, f.History)
	if err != nil {
		return err
	}
	e.sayf("%s", strings.Join(h, "\n"))
	return nil
}
