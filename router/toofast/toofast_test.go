package toofast_test

import (
	"testing"
	"time"

	"leasehold.dev/router/toofast"
)

func TestJudge(t *testing.T) {
	f := toofast.Fit{A: 100, B: 1, Measured: 256} // 256 tokens: 25.6 ms + 65.536 ms
	for _, c := range []struct {
		why         string
		f           toofast.Fit
		m           uint32
		span        time.Duration
		fast, known bool
	}{
		{"as measured", f, 256, 91136 * time.Microsecond, false, true},
		{"just not too fast", f, 256, 27341 * time.Microsecond, false, true},
		{"just too fast", f, 256, 27340 * time.Microsecond, true, true},
		{"slow, in company", f, 256, time.Minute, false, true},
		{"a span of nothing", f, 256, 0, true, true},
		{"too short to tell", f, 63, 0, false, false},
		{"one page", f, 64, 3149 * time.Microsecond, false, true},
		{"one page, too fast", f, 64, 3148 * time.Microsecond, true, true},
		{"ten times the measured length grows by ten only", f, 2560, 273408 * time.Microsecond, false, true},
		{"and a tenth of that is too fast", f, 2560, 91136 * time.Microsecond, true, true},
		{"no fit", toofast.Fit{}, 256, time.Second, false, false},
		{"a fit of nothing", toofast.Fit{Measured: 256}, 256, time.Second, false, false},
		{"the incident: 700,168 tokens in 7.1 s where 662,162 took 68.9 s", toofast.Fit{A: 68.9e6 / 662162, Measured: 662162}, 700168, 7100 * time.Millisecond, true, true},
		{"and what took 68.9 s", toofast.Fit{A: 68.9e6 / 662162, Measured: 662162}, 662162, 68900 * time.Millisecond, false, true},
	} {
		if fast, known := c.f.Judge(c.m, c.span); fast != c.fast || known != c.known {
			t.Errorf("%s: fast %v, known %v; want %v, %v (expected %v)", c.why, fast, known, c.fast, c.known, c.f.Expected(c.m))
		}
	}
}
