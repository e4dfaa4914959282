package guards

import (
	"testing"

	"leasehold.dev/integration/scenario/stagetest"
)

// TestMatrix runs every cell.
func TestMatrix(t *testing.T) {
	cells, foreign := 0, map[string]int{}
	err := Run(t.Context(), stagetest.Setup(t), func(c Cell) {
		cells++
		foreign[c.Column] += c.Foreign
		if c.Wrong != "" {
			t.Errorf("%v", c)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := len(rows()) * len(columns()); cells != want {
		t.Errorf("%d cells, want %d", cells, want)
	}
	for _, c := range columns() {
		if leaks := foreign[c.name] > 0; leaks != (c.name == "all off") {
			t.Errorf("column %q: %d foreign markers", c.name, foreign[c.name])
		}
	}
}
