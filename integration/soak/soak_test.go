package soak

import (
	"testing"
	"time"

	"leasehold.dev/integration/scenario/stagetest"
)

// TestASoak is a short one, with a kill every few seconds.
func TestASoak(t *testing.T) {
	reports, err := Run(t.Context(), stagetest.Setup(t), Plan{Time: 15 * time.Second, Kills: 4 * time.Second, Seed: 1}, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	if len(reports) != 2 {
		t.Fatalf("%d reports, want one of each mesh", len(reports))
	}
	for name, r := range reports {
		t.Logf("%s: %v", name, r)
		if r.Whole == 0 || r.Cancelled == 0 || r.Kills == 0 || r.Tokens == 0 {
			t.Errorf("%s: no soak: %v", name, r)
		}
		if r.Foreign > 0 || r.Faults > 0 {
			t.Errorf("%s: %v: %q", name, r, r.First)
		}
	}
}
