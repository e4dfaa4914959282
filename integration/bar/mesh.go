package bar

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"

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

// runFailures kills every process, and Consul as the test of package control does.
func runFailures(ctx context.Context, e *Env) (Result, error) {
	r, err := scenarios(scenario.Failures...)(ctx, e)
	consul := goTest(ctx, "leasehold.dev/integration/control", "TestConsulAway|TestStaleCatalogue")
	e.sayf("Consul killed: %v", errWord(consul))
	r.Figures["Consul killed, stream and new requests"] = consul == nil
	r.Met = r.Met && consul == nil
	return r, errors.Join(err, consul)
}

// goTest runs tests by name. None found is a failure.
func goTest(ctx context.Context, pkg, names string) error {
	out, err := exec.CommandContext(ctx, "go", "test", "-count=1", "-v", "-run", "^("+names+")$", pkg).CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS")) {
		return fmt.Errorf("%s %s: %w\n%s", pkg, names, err, out)
	}
	return nil
}

func errWord(err error) string {
	if err == nil {
		return "as it must be"
	}
	return "NOT as it must be: " + err.Error()
}
