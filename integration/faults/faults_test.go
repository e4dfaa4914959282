// Package faults runs the scenarios in which a process dies.
package faults

import (
	"testing"

	"leasehold.dev/integration/scenario"
	"leasehold.dev/integration/scenario/stagetest"
)

func TestFailures(t *testing.T) {
	for _, s := range scenario.Failures {
		t.Run(s.Name, func(t *testing.T) {
			fig, err := s.Run(t.Context(), stagetest.Setup(t))
			if err != nil {
				t.Errorf("%v (figures %v)", err, fig)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	if fig, err := scenario.Refusals.Run(t.Context(), stagetest.Setup(t)); err != nil {
		t.Errorf("%v (figures %v)", err, fig)
	}
}
