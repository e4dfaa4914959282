// Package runner is the only caller of an engine: one loop that plans (package batch), steps, and hands every step's
// outcome to the sequences that were in it.
//
// # Tasks
//
// A [Task] is one sequence. [Runner.Admit] gives it a place in the queue before its pages are known; [Task.Start] makes
// it run; [Task.Cancel] ends it at any time. It ends by itself when its handler says so, on a fault record, on logits
// that are no numbers, at its deadline, and when its pool is detached. [Task.Done] is closed after the engine has closed
// the sequence: from then on no kernel touches its pages, which is what a lease's Retire promises.
//
// # Threads
//
// Attach, OpenSeq, Step, CloseSeq and Close happen on the loop's goroutine. A [Handler] is called there as well, between
// two steps, and must not block. Everything else may be called from any goroutine, and takes no longer than a lock.
//
// # Fail closed
//
// A step's outcome reaches a handler only when the step had no fault record of that sequence, its logits are finite, and
// the engine's count of appended rows is the planned one. Otherwise the task ends with a Corrupt error, and the handler
// never sees that step.
package runner
