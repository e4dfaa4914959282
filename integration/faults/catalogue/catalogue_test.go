package catalogue

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"leasehold.dev/integration/scenario/stagetest"
)

// rows are the rows of the catalogue of faults, as it was handed to us.
func rows(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile("testdata/rows.txt")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(b))
}

// TestEveryRowHasACase on every mover that exists, or a reason why not.
func TestEveryRowHasACase(t *testing.T) {
	have := map[string]map[string]bool{}
	for _, c := range Cases() {
		if have[c.Row] == nil {
			have[c.Row] = map[string]bool{}
		}
		for _, m := range c.Movers {
			have[c.Row][m] = true
		}
		if (c.Run == nil) == (c.Tests == "") {
			t.Errorf("%s %s: want a function or a test", c.Row, c.Name)
		}
	}
	all := rows(t)
	for _, row := range all {
		if why := missing[row]; (have[row] == nil) == (why == "") {
			t.Errorf("row %s: cases %v, reason %q: want one of both", row, have[row], why)
		}
	}
	for row, on := range have {
		if !slices.Contains(all, row) {
			t.Errorf("row %s is not in the catalogue", row)
		}
		if why := unshared[row]; on[GRPC] && on[SHM] == (why != "") {
			t.Errorf("row %s: on shm %v, reason %q: want one of both", row, on[SHM], why)
		}
	}
	if len(all) != 45 {
		t.Errorf("%d rows, want 45", len(all))
	}
}

// TestHandoffOnEveryMover runs the cases that share a mesh; make faults runs them all.
func TestHandoffOnEveryMover(t *testing.T) {
	only := regexp.MustCompile(os.Getenv("LEASEHOLD_FAULTS_ONLY"))
	own, mover := os.Getenv("LEASEHOLD_FAULTS_ONLY") != "", os.Getenv("LEASEHOLD_FAULTS_MOVER")
	var cases []Case
	for _, c := range Cases() {
		if mover == "" { // by ucx in make faults: half of these cases' time would be theirs
			c.Movers = slices.DeleteFunc(slices.Clone(c.Movers), func(m string) bool { return m == UCX })
		} else {
			if !slices.Contains(c.Movers, mover) {
				continue
			}
			c.Movers = []string{mover}
		}
		if c.Run != nil && (own || !c.Own) && only.MatchString(c.Row+" "+c.Name) {
			cases = append(cases, c)
		}
	}
	ran, failed, _, err := All(t.Context(), stagetest.Setup(t), cases, t.Logf)
	if err != nil || failed > 0 || ran < len(cases) {
		t.Errorf("%d of %d results are not as they must be, %v", failed, ran, err)
	}
}
