package bar

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"leasehold.dev/integration/soak"
	"leasehold.dev/protos/errs"
)

// runSoak soaks for LEASEHOLD_MINUTES; 10 unless told.
func runSoak(ctx context.Context, e *Env) (Result, error) {
	minutes := 10.0
	if text := os.Getenv("LEASEHOLD_MINUTES"); text != "" {
		var err error
		if minutes, err = strconv.ParseFloat(text, 64); err != nil || minutes <= 0 {
			return Result{}, errs.New(errs.Invalid, "LEASEHOLD_MINUTES is %q, want a number above 0", text)
		}
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
