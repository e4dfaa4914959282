//go:build ucx

package haul

import "testing"

func TestUCXBringsThePages(t *testing.T) {
	for _, l := range []Load{{PageBytes: 32 << 10, Bytes: 16 << 20}, {PageBytes: 1_474_560, Bytes: 32 << 20}} {
		for _, r := range Measure(t.Context(), l, Ours("ucx", "ucx", Options{}), Ours("ucx_cma", "ucx_cma", Options{})) {
			if r.Error != "" || len(r.Runs) != Runs || r.Moved <= 0 || r.Verified <= 0 || r.Verified > r.Most {
				t.Errorf("%s: %+v", r.Way, r)
			}
			t.Logf("%s of %d: %.2f GB/s (%.2f to %.2f), verified %.2f", r.Way, r.PageBytes, r.Moved, r.Least, r.Most, r.Verified)
		}
	}
}
