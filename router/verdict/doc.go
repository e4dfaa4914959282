// Package verdict compares what the two halves of a request say they did with what was admitted, and with each other.
//
// It is a guard: the first token of a request goes out only after [Compare] has returned nil. A difference is Corrupt:
// it is never retried, and nothing is answered.
package verdict
