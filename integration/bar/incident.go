package bar

import (
	"context"
	"os"
	"strconv"

	"leasehold.dev/integration/incident"
	"leasehold.dev/protos/errs"
)

// runIncident plays the incident at 1/LEASEHOLD_SCALE of its size; 64 unless told.
func runIncident(ctx context.Context, e *Env) (Result, error) {
	scale := 64
	if text := os.Getenv("LEASEHOLD_SCALE"); text != "" {
		var err error
		if scale, err = strconv.Atoi(text); err != nil {
			return Result{}, errs.New(errs.Invalid, "LEASEHOLD_SCALE is %q, want a number", text)
		}
	}
	rows, err := incident.Run(ctx, e.setup(), scale, e.sayf)
	foreign := map[string]int{"on": 0, "off": 0}
	for _, r := range rows {
		foreign[r.Guards] += r.Foreign
	}
	return Result{Met: err == nil && foreign["on"] == 0 && foreign["off"] > 0,
		Figures: map[string]any{"scale": scale, "rows": rows, "foreign_guards_on": foreign["on"], "foreign_guards_off": foreign["off"]}}, err
}
