package bar

import (
	"context"

	"leasehold.dev/integration/incident"
)

// runIncident plays the incident at 1/LEASEHOLD_SCALE of its size; 64 unless told.
func runIncident(ctx context.Context, e *Env) (Result, error) {
	scale, err := number("LEASEHOLD_SCALE", 64)
	if err != nil {
		return Result{}, err
	}
	rows, err := incident.Run(ctx, e.setup(), int(scale), e.sayf)
	foreign := map[string]int{"on": 0, "off": 0}
	for _, r := range rows {
		foreign[r.Guards] += r.Foreign
	}
	return Result{Met: err == nil && foreign["on"] == 0 && foreign["off"] > 0,
		Figures: map[string]any{"scale": scale, "rows": rows, "foreign_guards_on": foreign["on"], "foreign_guards_off": foreign["off"]}}, err
}
