// Package lease decides who may read and write a page of KV.
//
// It is a pure state machine. [Table.Step] takes one [Event], changes the table, and returns the [Effect]s that the
// caller carries out, in order, before the next Step. It reads no clock, does no I/O and starts no goroutine: equal
// histories give equal effects, and a history can be printed and replayed (testdata has some).
//
// # States
//
//	solo, source:  FREE -> WRITING  -> SEALED                -> RELEASING -> (proof) -> ZEROING -> FREE
//	destination:   FREE -> RESERVED -> STAGED -> VERIFYING -> OWNED -> RELEASING -> (proof) -> ZEROING -> FREE
//	any bad end:                                          -> QUARANTINE -> (proof) -> ZEROING -> FREE
//
// An end that finds all proofs there passes through RELEASING or QUARANTINE within one step; its tags and records are
// the same.
//
// # Invariants
//
//	I1  A page belongs to at most one lease.
//	I2  A page leaves RELEASING and QUARANTINE only when its worker has proven (Retired, Finish or WorkerGone) and every
//	    mover has (PullEnded). No timer is a proof: Expire moves a lease to QUARANTINE and nothing else.
//	I3  On entry to RELEASING or QUARANTINE every page of the lease becomes Nobody's, by the step's first effect.
//	I4  A destination page is Nobody's until its transfer was verified. The exception is a full page that a source of
//	    the same broker hands over: it is sealed and keeps its tag, which its new owner learns only when it is verified.
//	I5  No tag is ever written twice for two grants: a grant takes two generations, its own and Nobody's that ends it, and
//	    generations are never given out again. When they run out nothing is granted.
//	I6  A tenant is charged for its pages until they are proven, so quarantined pages count against its quota.
//
// # Fairness
//
// Reserve never waits, so what a tenant finds free is its latency. [Config].Quota bounds a tenant whatever others do;
// [Config].Share bounds it by what it leaves free (a dynamic threshold, as switches use for shared packet buffers), so a pool
// is lent out while nobody else asks, a newcomer finds room, and tenants that all flood come to equal parts as their leases
// end. Nothing is taken back for it, and a request that needs the whole pool gets it when it is the tenant's only one.
//
// # Tags
//
// Slots are given to tenants in the order of their first lease and are not reused. Generations count up from
// [Config].Generation through the whole table, not page by page, so that a tag names one grant of one page: a page table
// with two places swapped fails the check as a foreign page does.
//
// # The caller's duties
//
//   - Mint ids at random; step one event at a time (a mutex will do); carry out effects in order. WriteTags comes first
//     and must be done before anything else of the step is seen by anyone.
//   - Step Attached before a worker's first Reserve, and WorkerGone only when its process is proven gone.
//     Step Detached for a dead handle only when a live one, or one that is watched, stands for the same process.
//   - Step PullStarted before a mover touches a page, and PullEnded only when it cannot touch one again: an error, a
//     closed connection or a deadline is not that.
//   - A Reserve whose answer reached no worker is ended with Retired in the worker's name: it never had the pages.
//   - Clear the pages of Zero and step Zeroed. Nothing else makes a page free.
//   - A lease that ends badly on one side of a transfer is told by EndPull; the other side's table hears of it from the
//     caller (TransferFailed, Revoke).
package lease
