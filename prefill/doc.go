// Package prefill is the worker that turns a prompt into KV in leased pages, and samples nothing.
//
// # One Run
//
//	ticket   signature, ids, names, deadline; this worker's own limit        nothing has changed yet
//	queue    a place in the engine's batch
//	reserve  a SOURCE lease; the Pull of the admission is parked already
//	compute  chunk after chunk of tokens [0, n-1); full pages are sealed as their digests say 64 rows
//	finish   the last page, with the engine's count of rows; the verdict
//
// What fails before there is a lease is told to the waiting decode side by Refuse, so that it ends with this worker's
// error. What fails after it ends in Retire, once the engine has let go of the pages. Each lease ends in exactly one of
// Finish and Retire.
//
// # Numbers
//
// The verdict is what was counted where KV was appended: ids as they were fed, rows by the engine, pages by their
// digests. None is copied from the request; they are compared with it, and a difference is Corrupt.
package prefill
