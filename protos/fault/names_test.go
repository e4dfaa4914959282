package fault

import (
	"slices"
	"strings"
	"testing"
)

func TestNamesAreDistinctAndHaveTheirPrefix(t *testing.T) {
	var all []string
	for _, g := range Guards() {
		if !strings.HasPrefix(string(g), "guard:") {
			t.Errorf("guard %q has no prefix", g)
		}
		all = append(all, string(g))
	}
	for _, p := range Points() {
		if !strings.HasPrefix(string(p), "point:") {
			t.Errorf("point %q has no prefix", p)
		}
		all = append(all, string(p))
	}
	slices.Sort(all)
	if n := len(slices.Compact(slices.Clone(all))); n != len(all) || len(Guards()) != 15 {
		t.Errorf("%d distinct names of %d, %d guards, want all distinct and 15 guards", n, len(all), len(Guards()))
	}
}
