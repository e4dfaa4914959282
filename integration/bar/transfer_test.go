package bar

import (
	"testing"

	"leasehold.dev/integration/haul"
)

func TestATransferBarNeedsEverySizeAndTheBestPeer(t *testing.T) {
	row := func(way string, size int, runs ...float64) haul.Row {
		return haul.Row{Way: way, PageBytes: size, Order: "scattered", Moved: haul.Median(runs), Runs: runs, Proofs: []float64{1, 1, 1}}
	}
	b := transferBar{name: "x", ours: []string{"ours"}, peers: []string{"slow", "fast"}, sizes: []int{1 << 10, 1 << 20}, atLeast: 0.5}
	small := []haul.Row{row("ours", 1<<10, 3, 2, 4), row("slow", 1<<10, 1, 1, 1), row("fast", 1<<10, 4, 4, 4)}
	large := []haul.Row{row("ours", 1<<20, 4, 4, 4), row("slow", 1<<20, 4, 4, 4), row("fast", 1<<20, 2, 2, 2)}
	failed := row("fast", 1<<20, 2, 2, 2)
	failed.Error = "it ended"
	for _, tt := range []struct {
		name     string
		rows     []haul.Row
		verified bool
		met      bool
		ratio    float64
		missing  bool
	}{
		{"the worst size counts, and the best peer of each", append(small[:3:3], large...), false, true, 0.75, false},
		{"with its proof", append(small[:3:3], large...), true, false, 0.25, false},
		{"a size is missing", small, false, false, 0.75, true},
		{"a peer failed", append(small[:3:3], large[0], large[1], failed), false, false, 0.75, true},
		{"nothing was measured", nil, false, false, 0, true},
	} {
		b.verified = tt.verified
		v := b.judge(tt.rows)
		if v.Met != tt.met || v.Ratio != tt.ratio || (v.Missing != "") != tt.missing {
			t.Errorf("%s: %+v", tt.name, v)
		}
	}
}
