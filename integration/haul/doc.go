// Package haul moves one list of pages by every way there is, ours and others', on one machine.
//
// A [Load] is the list: which page of the source's pool belongs in which page of the destination's. A [Way] moves a load
// again and again: the memory's own speed (memcpy, process_vm_readv), bare connections (TCP, TLS 1.3), peers (NIXL,
// Mooncake, ucx_perftest), and our movers. Source and destination are two processes, but for memcpy.
//
// [Measure] opens the ways that are compared with each other together and lets their runs alternate, so that what disturbs
// the machine disturbs all of them. The destination is cleared before each run and looked at afterwards: ours by count
// and digest in every run, since that is what a broker does, the others by content after the last.
//
// # A mover of ours
//
// A mover is one file: it calls register with a [Mover], which has both sides. The source's process has the pages in its
// pool, sealed, and a [Source] for each Pull that comes; the destination's opens one Pull a run with a transfer.Receiver.
// What was found in the pages is compared with transfer.Verify, as a broker does it.
//
// Programs that measure call [Sending] first of all: the source's process is the program itself.
package haul
