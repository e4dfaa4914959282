package bar

import (
	"context"
	"errors"
	"fmt"
	"time"

	"leasehold.dev/integration/soak"
)

// runSoak soaks for LEASEHOLD_MINUTES; 10 unless told.
func runSoak(ctx context.Context, e *Env) (Result, error) {
	minutes, err := number("LEASEHOLD_MINUTES", 10)
	if err != nil {
		return Result{}, err
	}
	seed := uint64(time.Now().UnixNano())
	e.sayf("soak: %v minutes, seed %d", minutes, seed)
	reports, err := soak.Run(ctx, e.setup(), soak.Plan{Time: time.Duration(minutes * float64(time.Minute)), Kills: 30 * time.Second, Seed: seed}, e.sayf)
	met := err == nil
	requests, tokens := 0, 0
	for name, r := range reports {
		e.sayf("%s: %v", name, r)
		requests, tokens = requests+r.Requests, tokens+r.Tokens
		for _, f := range r.First {
			err = errors.Join(err, fmt.Errorf("unexplained: %s", f))
		}
		met = met && r.Faults == 0 && r.Foreign == 0 && r.Whole > 0 && r.Cancelled > 0 && r.Kills > 0
	}
	return Result{Met: met, Figures: map[string]any{"minutes": minutes, "seed": seed, "requests": requests, "tokens": tokens, "meshes": reports}}, err
}
