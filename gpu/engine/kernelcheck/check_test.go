//go:build cgo && amd64

package kernelcheck

import (
	"fmt"
	"testing"
)

func eachPath(t *testing.T, f func(t *testing.T, s SIMD)) {
	n := 0
	for _, s := range []SIMD{AVX2, AVX512} {
		if !Has(s) {
			t.Logf("%v: not on this machine, and not emulated (tag simde)", s)
			continue
		}
		n++
		t.Run(s.String(), func(t *testing.T) { f(t, s) })
	}
	if n == 0 {
		t.Fatal("no SIMD path can run here")
	}
}

func want0(t *testing.T, what string, n int, err error) {
	t.Helper()
	if n != 0 || err != nil {
		t.Errorf("%s: %d values differ, %v", what, n, err)
	}
}

// Rows around every tile size, an odd number of blocks, features that end inside a group.
func TestProductsAreTheScalarOrder(t *testing.T) {
	eachPath(t, func(t *testing.T, s SIMD) {
		for _, typ := range []Type{Q40, Q41, Q80} {
			for _, rows := range []int{1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 25, 64, 65, 241} {
				n, err := Gemm(s, typ, rows, 96, 40, uint64(rows))
				want0(t, fmt.Sprintf("type %d, %d rows of 96", typ, rows), n, err)
			}
			for _, cols := range []int{32, 64, 576, 1536} {
				n, err := Gemm(s, typ, 7, cols, 32, uint64(cols))
				want0(t, fmt.Sprintf("type %d, 7 rows of %d", typ, cols), n, err)
			}
		}
	})
}

func TestGatedUnitIsTheScalarOrder(t *testing.T) {
	eachPath(t, func(t *testing.T, s SIMD) {
		for _, typ := range []Type{Q40, Q41, Q80} {
			for _, rows := range []int{1, 7, 13, 65, 241} {
				n, err := GateUp(s, typ, rows, 64, 96, uint64(rows))
				want0(t, fmt.Sprintf("type %d, %d rows", typ, rows), n, err)
			}
		}
	})
}

func TestNormIsTheScalarOrder(t *testing.T) {
	eachPath(t, func(t *testing.T, s SIMD) {
		for _, rows := range []int{1, 2, 7, 13, 65} {
			for _, cols := range []int{32, 96, 576} {
				n, err := Norm(s, rows, cols, uint64(rows))
				want0(t, fmt.Sprintf("%d rows of %d", rows, cols), n, err)
			}
		}
	})
}

func TestAppendPutsATokenInItsPlaceAndNowhereElse(t *testing.T) {
	eachPath(t, func(t *testing.T, s SIMD) {
		for slot := range 64 {
			n, err := Append(s, slot, uint64(slot))
			want0(t, fmt.Sprintf("slot %d", slot), n, err)
		}
	})
}

// Positions on both sides of pages (64) and of chunks (512).
func TestAttentionIsTheScalarOrder(t *testing.T) {
	eachPath(t, func(t *testing.T, s SIMD) {
		for _, pos := range []int{0, 1, 6, 15, 16, 62, 63, 64, 65, 127, 128, 447, 511, 512, 513, 1100} {
			for _, heads := range []int{1, 2, 3, 4, 8} {
				n, err := Decode(s, heads, pos, uint64(pos))
				want0(t, fmt.Sprintf("decode at %d, %d heads", pos, heads), n, err)
			}
			n, err := Prefill(s, pos, uint64(pos))
			want0(t, fmt.Sprintf("prefill around %d", pos), n, err)
			n, err = PartialPrefill(s, pos, uint64(pos))
			want0(t, fmt.Sprintf("prefill up to %d", pos), n, err)
			n, err = SparsePrefill(s, pos, uint64(pos))
			want0(t, fmt.Sprintf("prefill around %d, mostly zeros", pos), n, err)
		}
	})
}
