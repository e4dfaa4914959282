//go:build !faults

package fault

import "testing"

// TestNothingIsThere: what a release build asks has one answer, and costs nothing.
func TestNothingIsThere(t *testing.T) {
	if Enabled || AnyOff() {
		t.Errorf("Enabled = %v, AnyOff() = %v in a release build, want false", Enabled, AnyOff())
	}
	for _, g := range Guards() {
		if Off(g) {
			t.Errorf("Off(%s) = true in a release build", g)
		}
	}
	for _, p := range Points() {
		if a, n := At(p), N(p); a != None || n != 0 || Armed(p) {
			t.Errorf("At(%s) = %v, N = %d in a release build, want nothing, not armed", p, a, n)
		}
	}
}
