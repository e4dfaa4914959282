// Package batch decides which tokens the next step of an engine computes: continuous batching with chunked prefill, fair
// between tenants, behind a bounded queue.
//
// It is a pure core: a [Planner] reads no clock, does no I/O and starts no goroutine, and the same calls give the same
// plans. It knows counts, never token ids. One goroutine calls it.
//
// # Life of a sequence
//
//	Admit -> held -> Start -> waiting -> (first planned) -> prompt -> idle <-> ready -> End
//
// A held sequence has its place in the queue and is not planned yet: its pages are still being reserved or moved. From
// its first planned token until End it holds one of the engine's sequence slots. Feed makes an idle sequence ready: one
// more token, sampled from the step before. End may come in any state, for any reason; nothing of that sequence is
// planned after it.
//
// # The plan of a step
//
// One token of each ready sequence comes first. What is left of the budget goes to prompts: deficit round robin over
// tenants, in turns of [Quantum] tokens, and first come first served inside a tenant, with at most Chunk tokens of one
// sequence. A plan is a promise: its tokens are counted as appended when it is made, so the caller runs it, or ends its
// sequences.
//
// # Invariants
//
//	I1  a plan has at most StepTokens tokens, and one item a sequence
//	I2  items of a sequence name consecutive positions, each once, in order
//	I3  an ended sequence is in no later plan
//	I4  at most Sequences sequences hold a slot
//	I5  a waiting prompt advances within a bounded number of plans, if slots come free
package batch
