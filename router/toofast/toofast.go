// Package toofast tells a prompt that was not computed by its time: a worker that says it sealed m tokens in far less than it
// needed for m tokens of its own warm-up did something else. In the incident the wrong answers came ten times too fast.
package toofast

import "time"

// Share of the expected time under which a prompt counts as not computed, and the fewest tokens that are judged: a page's.
const (
	Share = 0.3
	Least = 64
)

// Fit is a worker's warm-up: a*m + b*m^2 microseconds for m tokens, measured up to Measured of them. The zero Fit is none.
type Fit struct {
	A, B     float64
	Measured uint32
}

// Expected is the least time that m tokens are expected to take. Past the measured lengths it grows with m only: attention can
// but make it longer, and a quadratic term out of short prompts must not raise false alarms about long ones.
func (f Fit) Expected(m uint32) time.Duration {
	at := min(m, f.Measured)
	if at == 0 {
		return 0
	}
	us := f.A*float64(at) + f.B*float64(at)*float64(at)
	return time.Duration(us / float64(at) * float64(m) * float64(time.Microsecond))
}

// Judge says whether span is too fast for m tokens; known is false when nobody can tell: no fit, a prompt that is too short, or
// an expectation of no time. A span that is missing is too fast.
func (f Fit) Judge(m uint32, span time.Duration) (fast, known bool) {
	want := f.Expected(m)
	if m < Least || want <= 0 {
		return false, false
	}
	return float64(span) < Share*float64(want), true
}
