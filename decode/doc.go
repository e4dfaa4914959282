// Package decode is the worker that turns verified pages into tokens.
//
// # One Generate
//
//	ticket    signature, ids, names, deadline; this worker's own limits       nothing has changed yet
//	queue     a place in the engine's batch
//	reserve   a DESTINATION lease, or a SOLO one when decode computes the prompt itself; Admitted
//	owned     the broker has verified what arrived; compared again with this worker's own expectation; Verdict
//	compute   from token n-1 on (SOLO: all n tokens in chunks), one sampled token a step; Tokens
//	finish    an end token, a stop string or max_new_tokens; Finished
//
// The lease is retired once the engine has let go of its pages and the brokers have looked at moved ones again, however the request ended, and whether or not the client
// still reads. A stream ends OK only after Finished.
//
// # What leaves
//
// A token is sampled only from a step without fault records and with finite logits (package runner), so nothing of a
// faulty step leaves. The first token of a split request also waits for both brokers' second look at the pages, which runs
// beside the first step. Text leaves in whole characters, and what may be the start of a stop string waits. The last sampled
// token is never appended to KV: nobody reads its row.
package decode
