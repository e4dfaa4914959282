package retry

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func TestDelayStaysBetweenHalfAndWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := Backoff{Min: time.Duration(rapid.Int64Range(1, 1e9).Draw(t, "min"))}
		b.Max = b.Min * time.Duration(rapid.Int64Range(1, 64).Draw(t, "times"))
		whole := b.Min
		for range rapid.IntRange(1, 12).Draw(t, "attempts") {
			if d := b.Delay(); d < whole/2 || d > whole {
				t.Fatalf("Delay = %v, want %v to %v", d, whole/2, whole)
			}
			whole = min(2*whole, b.Max)
		}
		b.Reset()
		if d := b.Delay(); d > b.Min {
			t.Fatalf("after Reset: %v, want at most %v", d, b.Min)
		}
	})
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := Backoff{Min: time.Minute, Max: time.Minute}
		start := time.Now()
		if err := b.Wait(t.Context()); err != nil || time.Since(start) < 30*time.Second || time.Since(start) > time.Minute {
			t.Errorf("Wait = %v after %v", err, time.Since(start))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		start = time.Now()
		if err := b.Wait(ctx); err == nil || time.Since(start) != 0 {
			t.Errorf("Wait of an ended context = %v after %v", err, time.Since(start))
		}
	})
}
