// Package pair has two Movers in two processes, for tests and benchmarks: one in the caller's, one in a child that is the
// same program. Each has its own pool; the child's is mapped by the parent too, which fills it and looks into it, also after
// the child is dead.
//
// A program that starts children calls [Main] before anything else.
package pair
