package sample

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// The known answers that the authors of Philox publish with their library.
func TestPhiloxKnownAnswers(t *testing.T) {
	const f = math.MaxUint32
	for _, tt := range []struct {
		c    [4]uint32
		k    [2]uint32
		want [4]uint32
	}{
		{want: [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{c: [4]uint32{f, f, f, f}, k: [2]uint32{f, f}, want: [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{c: [4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, k: [2]uint32{0xa4093822, 0x299f31d0},
			want: [4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	} {
		if got := philox(tt.c, tt.k); got != tt.want {
			t.Errorf("philox(%x, %x) = %x, want %x", tt.c, tt.k, got, tt.want)
		}
	}
}

func TestUniformIsInTheUnitIntervalAndEven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		const n = 4000
		var bins [8]int
		for pos := range uint32(n) {
			u := Uniform(seed, pos)
			if u < 0 || u >= 1 {
				t.Fatalf("Uniform(%d, %d) = %v", seed, pos, u)
			}
			bins[int(u*8)]++
		}
		for i, got := range bins { // 500 expected, deviation 21: 8 of them
			if got < 500-170 || got > 500+170 {
				t.Fatalf("seed %d: %d of %d draws in bin %d of 8", seed, got, n, i)
			}
		}
	})
}

func TestUniformDependsOnSeedAndPosition(t *testing.T) {
	seen := map[float64]bool{}
	for _, seed := range []uint64{0, 1, 1 << 32, math.MaxUint64} {
		for pos := range uint32(100) {
			u := Uniform(seed, pos)
			if seen[u] {
				t.Fatalf("Uniform(%d, %d) = %v was drawn before", seed, pos, u)
			}
			seen[u] = true
		}
	}
}
