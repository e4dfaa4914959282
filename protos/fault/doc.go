// Package fault is the kit with which tests break a running process: injection points, and switches of single guards.
//
// It is there only under the build tag faults. Without the tag [At] and [Off] are empty and constant, the compiler drops
// what hangs on them, and no name of a point or guard is in the binary; a test of package integration/faults/kit proves
// it of all five programs.
//
// # A point
//
// Code passes a point with [At] and does what it returns, if the point knows that action; what happens to the process
// itself (delay, hold, pause, kill) At does by itself. Nothing is armed when a process starts.
//
// # A guard
//
// A check asks [Off] first. With its guard off the code goes on, as a system without that guard would; nothing is put in
// its place. One guard may be asked about in several processes, and each process has its own switches.
//
// # Control
//
// A process of a faults build whose environment has LEASEHOLD_FAULTS=DIR listens on the unix socket DIR/PID, after it has
// carried out the lines of the file DIR/start, if there is one. Each line is a command, answered by one line: "ok", an
// object of JSON, or "error: " and what was wrong.
//
//	off GUARD...             turn guards off
//	on GUARD...              turn them on again
//	arm POINT ACTION [after=N] [times=N] [for=DURATION] [n=N]
//	                         from the N-th passing on (default 0: the next), so many times (default 0: every time);
//	                         for: of a delay; n: a number that the action may use, such as a byte's place
//	disarm POINT...          also lets go of whoever is held there
//	counts                   {"passed":{...},"fired":{...},"off":[...]}: how often each point was passed and has acted
//
// Whoever reads a counter's growth knows that the fault has happened: tests wait for it and need no sleep.
package fault
