package probe

import "leasehold.dev/mesh/boundary"

// The properties that a canary speaks for.
var (
	positive = boundary.Watches[boundary.Canary]
	negative = boundary.Watches[boundary.NegativeCanary]
)

// Expect starts the clocks of a pair: from now on its silence shows.
func Expect(b *boundary.Recorder, pair string) {
	for _, p := range positive {
		b.Expect(p, boundary.Canary, pair)
	}
	for _, p := range negative {
		b.Expect(p, boundary.NegativeCanary, pair)
	}
}

// Record tells the recorder what a row says. A request that was not answered, or was refused though it should have been
// served, says nothing of the properties, and leaves their clocks as they are. A wrong answer is an incident of all that
// the canary speaks for, but for P2, which is broken only by what is another tenant's.
func Record(b *boundary.Recorder, r Row) {
	switch {
	case !r.Told:
	case r.Check.Want == Echo:
		for _, p := range positive {
			b.Observed(p, boundary.Canary, r.Pair)
			if !r.OK && (p != boundary.P2 || r.Verdict.Leaked() > 0) {
				b.Incident(p, boundary.Canary, "pair "+r.Pair)
			}
		}
	case r.Check.Want == Limit:
		for _, p := range negative {
			b.Observed(p, boundary.NegativeCanary, r.Pair)
			if !r.OK {
				b.Incident(p, boundary.NegativeCanary, "pair "+r.Pair)
			}
		}
	case !r.OK:
		b.Incident(boundary.P3, boundary.NegativeCanary, "pair "+r.Pair)
	}
}
