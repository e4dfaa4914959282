// Package reconcile compares, after the fact, what the brokers of both halves of an admission recorded with each other and
// with what the router saw. The router's inline comparison of the workers' verdicts is the guard of property P4; this is its
// detector, and that of P3: it uses another channel (RecordService), other witnesses (the brokers, not the workers), and
// none of the guard's code.
//
// [Core] is pure: Step takes one event and returns what it found. It has no clock, no lock and no goroutine; events carry
// their time. Nothing is taken on trust: an answered request of which a half is missing after Config.Patience is a finding,
// and so is a hole in a broker's records, and an entry that had to give way because Config.Open are open.
//
// With several routers each sees the records of all: an admission that it did not make itself is compared half against half.
package reconcile
