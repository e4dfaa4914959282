package bar

import (
	"context"
	"fmt"
	"time"

	"leasehold.dev/integration/faults/catalogue"
	"leasehold.dev/integration/guards"
)

// faultsSeconds is how long the whole catalogue may take on 2 cores.
const faultsSeconds = 600

// runFaults runs the catalogue of faults: every row on every mover.
func runFaults(ctx context.Context, e *Env) (Result, error) {
	start := time.Now()
	ran, failed, rows, err := catalogue.All(ctx, e.setup(), catalogue.Cases(), e.sayf)
	if err != nil {
		return Result{}, err
	}
	took := time.Since(start).Seconds()
	fig := map[string]any{"scenarios": ran, "not_as_they_must_be": failed, "rows": len(rows), "seconds_at_most": faultsSeconds, "rows_without": catalogue.Missing()}
	if failed > 0 {
		err = fmt.Errorf("%d of %d scenarios are not as they must be", failed, ran)
	}
	return Result{Met: failed == 0 && took < faultsSeconds, Figures: fig}, err
}

// runGuardMatrix turns guards off, one by one and all but one.
func runGuardMatrix(ctx context.Context, e *Env) (Result, error) {
	cells, wrong, noted := 0, 0, 0
	foreign := map[string]int{}
	err := guards.Run(ctx, e.setup(), func(c guards.Cell) {
		e.sayf("%v", c)
		cells++
		foreign[c.Column] += c.Foreign
		if c.Wrong != "" {
			wrong++
		}
		if c.Note != "" {
			noted++
		}
	})
	if err != nil {
		return Result{}, err
	}
	fig := map[string]any{"cells": cells, "not_as_they_must_be": wrong, "with_a_reason": noted, "foreign_markers": foreign}
	if wrong > 0 {
		err = fmt.Errorf("%d of %d cells are not as they must be", wrong, cells)
	}
	return Result{Met: wrong == 0 && foreign["all off"] > 0, Figures: fig}, err
}
