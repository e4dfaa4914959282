package incident

import (
	"testing"

	"leasehold.dev/integration/scenario/stagetest"
)

// TestIncident plays the whole story at 1/64.
func TestIncident(t *testing.T) {
	rows, err := Run(t.Context(), stagetest.Setup(t), 64, t.Logf)
	if err != nil {
		t.Error(err)
	}
	if len(rows) != 8 {
		t.Errorf("%d rows, want 8: %+v", len(rows), rows)
	}
}
