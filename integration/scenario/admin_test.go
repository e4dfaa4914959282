package scenario

import (
	"maps"
	"slices"
	"testing"
)

func TestRose(t *testing.T) {
	before := map[string]float64{"a": 1, "b": 2}
	got := Rose(before, map[string]float64{"a": 1, "b": 3, "c": 1, "d": 0})
	if want := []string{"b", "c"}; !slices.Equal(got, want) {
		t.Errorf("rose %v, want %v", got, want)
	}
}

func TestSamples(t *testing.T) {
	got := samples("# HELP a of two words 3\n# TYPE a counter\na 1\na_total{b=\"c d\",e=\"f\"} 2.5e+01\n\nno number\n")
	if want := map[string]float64{"a": 1, `a_total{b="c d",e="f"}`: 25}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
