// Package server is the shell around the broker's pure cores: it owns one page pool, serves workers, other brokers and
// operators, and carries out what the lease table decides.
//
// # Who decides
//
// package lease decides every state of every page; package transfer decides what a Pull must bring and whether it has.
// The shell feeds them events and executes their effects. One mutex guards both; under it tags are stored, queues
// appended and contexts cancelled, and nothing waits. Clearing, digesting and moving pages happen outside it, between
// two steps.
//
// # Order that matters
//
//   - A tag is written before anything else of its step. A page that is given up is Nobody's before its mover is told
//     to stop, and before its worker hears of it.
//   - A mover is counted in the table (PullStarted) before its first byte, and is out (PullEnded) only when the code
//     that touches pages has returned.
//   - A page is cleared, then Zeroed is stepped, then it can be granted.
//   - A destination's pages get tags only by Verified, and that is stepped only after [transfer.Verify] has passed over
//     digests that were taken from the pages once they had landed. Then both brokers look at theirs at rest once more, and
//     AwaitSettled answers only after both have; the source's Pull ends, and lets its pages go, after its own look.
//   - A lease whose worker never heard of it is retired by the shell; any other only by its worker, or by the exit of
//     its worker's process.
//
// Timers and lost connections move leases to quarantine. No timer frees a page.
//
// # Late writes
//
// A share of pages (all in CI) is digested again before it is cleared, and is looked at for zero when it is granted. A
// difference is an incident: somebody wrote who had promised not to. That page is withheld until every process that
// was attached then is gone.
package server
