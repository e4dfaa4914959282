package worker

import (
	"math"
	"runtime"
	"slices"
	"testing"
	"time"
)

func sample(m uint32, us float64) Sample {
	return Sample{m, time.Duration(us * float64(time.Microsecond))}
}

func TestFit(t *testing.T) {
	at := func(a, b float64, ms ...uint32) (out []Sample) {
		for _, m := range ms {
			out = append(out, sample(m, a*float64(m)+b*float64(m)*float64(m)))
		}
		return out
	}
	for _, c := range []struct {
		why      string
		samples  []Sample
		a, b     float64
		measured uint32
	}{
		{"nothing", nil, 0, 0, 0},
		{"no tokens, no time", []Sample{{0, time.Second}, {64, 0}, {64, -time.Second}}, 0, 0, 0},
		{"one sample is a line", at(7, 0, 64), 7, 0, 64},
		{"two samples", at(10, 0.5, 64, 256), 10, 0.5, 256},
		{"many samples", at(3, 0.01, 64, 128, 256, 512), 3, 0.01, 512},
		{"a line", at(3, 0, 64, 128, 256), 3, 0, 256},
		{"a parabola", at(0, 2, 64, 128, 256), 0, 2, 256},
		{"a falling cost is a line", []Sample{sample(64, 640), sample(256, 1280)}, (64*640. + 256*1280.) / (64*64. + 256*256.), 0, 256},
		{"a start below zero is a parabola", at(-5, 1, 64, 256), 0, 0, 256}, // b is checked below
	} {
		f := fit(c.samples)
		near := func(x, y float64) bool { return math.Abs(x-y) <= 1e-3*(1+math.Abs(y)) }
		if c.why == "a start below zero is a parabola" {
			if f.A != 0 || f.B <= 0.9 || f.B >= 1 {
				t.Errorf("%s: %+v", c.why, f)
			}
			continue
		}
		if !near(f.A, c.a) || !near(f.B, c.b) || f.Measured != c.measured {
			t.Errorf("%s: %+v, want %v*m + %v*m^2 up to %d", c.why, f, c.a, c.b, c.measured)
		}
	}
}

// A real engine: more tokens take longer, and the pages of the warm-up are no tenant's.
func TestWarmUpIsMeasuredBeforeTheFirstAttach(t *testing.T) {
	g := newRig(t, nil)
	g.warm = true
	g.start(t)
	s := g.until(t, ready)
	w := s.WarmUp
	if w.GetMeasuredTokens() != 256 || w.GetAUs() < 0 || w.GetBUs() < 0 || w.GetAUs()+256*w.GetBUs() <= 0 {
		t.Errorf("warm-up %v, want a cost above 0 up to 256 tokens", w)
	}
	if s.QueuedTokens != 0 || s.Sequences != 0 || s.FreePages != pages {
		t.Errorf("the warm-up left %d tokens, %d sequences, %d of %d pages", s.QueuedTokens, s.Sequences, s.FreePages, pages)
	}
}

func TestWithoutAWarmUpThereIsNoFit(t *testing.T) {
	g := newRig(t, nil)
	g.start(t)
	if s := g.until(t, ready); s.WarmUp != nil {
		t.Errorf("warm-up %v of a worker that measured none", s.WarmUp)
	}
}

func TestTheShortestTimeOfALengthCounts(t *testing.T) {
	var got []Sample
	for _, s := range []Sample{{64, 9}, {128, 5}, {64, 3}, {128, 8}} {
		got = shortest(got, s)
	}
	if want := []Sample{{64, 3}, {128, 5}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// On a busy machine a computation lasts longer than its threads run; a process that does other things runs longer than it lasts.
func TestWaitingForACoreIsNoComputing(t *testing.T) {
	for _, tt := range []struct {
		wall, cpu time.Duration
		threads   int
		want      time.Duration
	}{
		{10 * time.Millisecond, 20 * time.Millisecond, 2, 10 * time.Millisecond},
		{35 * time.Millisecond, 20 * time.Millisecond, 2, 10 * time.Millisecond},
		{10 * time.Millisecond, 60 * time.Millisecond, 2, 10 * time.Millisecond},
		{time.Second, time.Duration(runtime.GOMAXPROCS(0)) * time.Millisecond, 0, time.Millisecond},
	} {
		if got := took(tt.wall, tt.cpu, tt.threads); got != tt.want {
			t.Errorf("%v on the clock, %v of %d threads: %v, want %v", tt.wall, tt.cpu, tt.threads, got, tt.want)
		}
	}
}
