package sample

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestExp(t *testing.T) {
	if exp(0) != 1 {
		t.Errorf("exp(0) = %v, want 1", exp(0))
	}
	rapid.Check(t, func(t *rapid.T) {
		z := rapid.Float64Range(-700, 0).Draw(t, "z")
		got, want := exp(z), math.Exp(z)
		if math.Abs(got-want) > 2*(math.Nextafter(want, 2)-want) {
			t.Fatalf("exp(%v) = %v, want %v", z, got, want)
		}
	})
}

func TestExpRises(t *testing.T) {
	last := 0.0
	for i := range 100_000 {
		z := -45 + float64(i)*45/100_000
		if e := exp(z); e < last {
			t.Fatalf("exp(%v) = %v, before it %v", z, e, last)
		} else {
			last = e
		}
	}
}

func BenchmarkExp(b *testing.B) {
	z := 0.0
	for b.Loop() {
		if exp(z) == 2 {
			b.Fatal("exp is wrong")
		}
		if z -= 1e-4; z < -40 {
			z = 0
		}
	}
}
