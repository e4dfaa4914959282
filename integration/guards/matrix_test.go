package guards

import (
	"slices"
	"strings"
	"testing"

	"leasehold.dev/protos/fault"
)

func TestEveryGuardHasOneRow(t *testing.T) {
	var have []fault.Guard
	for _, r := range rows() {
		have = append(have, r.guard)
	}
	want := fault.Guards()
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("rows for %v, want one for each of %v", have, want)
	}
}

func TestColumnsTurnOffWhatTheySay(t *testing.T) {
	r := row{guard: fault.Digest, with: []fault.Guard{fault.Counts}}
	n := len(fault.Guards())
	for i, want := range []int{0, 1, n - 2, n} {
		c := columns()[i]
		off := c.off(r)
		if len(off) != want {
			t.Errorf("%s: %d guards off, want %d", c.name, len(off), want)
		}
		if on := !slices.Contains(off, fault.Digest); on != (i == 0 || i == 2) {
			t.Errorf("%s: the row's guard is on: %v", c.name, on)
		}
	}
}

func TestJudgeCell(t *testing.T) {
	must, cannot := &Attack{}, &Attack{never: "for a reason"}
	for _, tt := range []struct {
		name   string
		row    row
		column string
		seen   Seen
		wrong  string // empty: as it must be
	}{
		{"all on and red", row{attack: must}, "all on", Seen{Ended: "corrupt"}, ""},
		{"all on, an alarm alone", row{attack: must}, "all on", Seen{Own: 24, Red: []string{"x"}}, ""},
		{"all on and silent", row{attack: must}, "all on", Seen{Own: 24}, "nothing turned red"},
		{"all on and a leak", row{attack: must}, "all on", Seen{Foreign: 1, Ended: "corrupt"}, "another tenant's"},
		{"one off and another speaks", row{attack: must}, "this one off", Seen{Ended: "corrupt"}, ""},
		{"one off and silent", row{attack: must}, "this one off", Seen{}, "nothing turned red"},
		{"one off and silent, for a reason", row{attack: must, quiet: "so"}, "this one off", Seen{}, ""},
		{"one off and a leak", row{attack: must, quiet: "so"}, "this one off", Seen{Foreign: 2}, "another tenant's"},
		{"alone and red", row{attack: must}, "only this one on", Seen{Ended: "limit"}, ""},
		{"alone and answered", row{attack: must}, "only this one on", Seen{Own: 24}, "was answered"},
		{"alone and harmless", row{attack: must, clean: true}, "only this one on", Seen{Own: 24}, ""},
		{"alone and a leak", row{attack: must, clean: true}, "only this one on", Seen{Foreign: 1}, "does not stop it"},
		{"all off and a leak", row{attack: must}, "all off", Seen{Foreign: 24}, ""},
		{"all off and no leak", row{attack: must}, "all off", Seen{Ended: "corrupt"}, "proves nothing"},
		{"all off, where none can come", row{attack: cannot}, "all off", Seen{}, ""},
		{"all off, and it comes all the same", row{attack: cannot}, "all off", Seen{Foreign: 1}, "cannot"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wrong, _ := judgeCell(tt.row, tt.column, tt.seen)
			if (wrong == "") != (tt.wrong == "") || !strings.Contains(wrong, tt.wrong) {
				t.Errorf("judged %q, want %q", wrong, tt.wrong)
			}
		})
	}
}
