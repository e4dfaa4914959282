package bar

import (
	"context"
	"errors"
	"fmt"

	"leasehold.dev/integration/scenario"
)

func (e *Env) setup() scenario.Setup {
	return scenario.Setup{Bin: e.Bin, Model: e.Model, Cache: e.Cache}
}

// scenarios makes a bar of scenarios: met when none returns an error.
func scenarios(all ...scenario.Scenario) func(context.Context, *Env) (Result, error) {
	return func(ctx context.Context, e *Env) (Result, error) {
		figures := map[string]any{}
		var failed error
		for _, s := range all {
			fig, err := s.Run(ctx, e.setup())
			if err != nil {
				failed = errors.Join(failed, fmt.Errorf("%s: %w", s.Name, err))
			}
			e.sayf("%s: %v %v", s.Name, fig, errWord(err))
			figures[s.Name] = fig
		}
		return Result{Met: failed == nil, Figures: figures}, failed
	}
}

func errWord(err error) string {
	if err == nil {
		return "as it must be"
	}
	return "NOT as it must be: " + err.Error()
}
