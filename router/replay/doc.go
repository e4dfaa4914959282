// Package replay runs some of the tenants' requests a second time, elsewhere, and compares: the same request in the same
// numerics class has the same tokens and the same logits, bit for bit, so a difference means that an answer was made of
// something else than its prompt and the weights. It is the detector of property P1 for real requests.
//
//	core     which requests, and when                                          (pure)
//	auditor  runs them after the answer, one at a time, and says what it saw
//
// Which: a sampled share, within a token budget; and always one whose prompt is longer than 0.9 of the longest that was
// verified on its pair of workers, whatever the budget says. A pair whose broker was started again is another pair.
//
// How: decode computes the prompt itself (no transfer), on pages of its own, and on another decode worker when there is
// one of the same numerics class. The tenant's own quota pays for the pages.
//
// When: tenants go first. A replay waits until the worker has nothing queued, at most one sequence and a quarter of its
// pool left; while it waits, the time between two looks doubles. What waits is bounded in bytes, and what finds no room
// is counted, and given up, the sampled before the longest.
package replay
