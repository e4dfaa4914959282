// Package boundary counts what the detectors of the properties P1 to P5 see, so that a detector that has gone silent can be
// told from one that finds nothing. docs/boundary.md lists the properties; deploy/prometheus/boundary.rules.yml has the alerts.
//
// A process has one [Recorder], mesh.Server's Boundary. The duties of a detector:
//
//	b.Expect(boundary.P1, boundary.Canary, boundary.Pair(p, d)) // once it should look: from now on silence is measured
//	b.Observed(boundary.P1, boundary.Canary, boundary.Pair(p, d)) // each time that it looked and the property held
//	b.Incident(boundary.P1, boundary.Canary, "...")              // each time that it did not hold, and what it is about
//	b.Forget(boundary.Pair(p, d))                                 // when the pair is gone for good
//
// Observed means that the property itself was looked at, not that the detector's loop ran. A look that found an incident
// is an observation too: call both. Which detector speaks for which property is a closed table, [Watches]; a combination
// that is not in it is never observed, and its incidents are counted under [Unknown].
package boundary
