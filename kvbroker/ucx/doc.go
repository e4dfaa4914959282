// Package ucx moves pages between the pools of two processes by UCX active messages. It is built with the tag ucx; without
// it, [Open] says so and everything else is here and does nothing.
//
// The sender offers a page (rendezvous), the receiver names the memory and reads. A [Mover] serves one pool of one process
// with one thread; what it is told are transfers, and what it answers are [Event]s.
//
// # Receiving
//
// [Mover.Expect] names a transfer and the pool pages of its places. A message is taken when its transfer is expected, its
// place is in the window and has not come, and its length is a page's; any other is given back unread and fails the
// transfer that it names. So nothing is written to a page but what was offered for it, once. A page that came is digested
// where it lies before it is reported as Landed.
//
// # Sending
//
// [Mover.Provide] names a transfer and where it goes, [Mover.Send] gives its pages. Sent means that the page is not read any
// more; whether it arrived only the receiver knows, since an offer that is given back ends well.
//
// # The end
//
// [Mover.End] is answered with Drained: exactly one for each End, after the last operation of the transfer has had its own
// end. Nothing reads or writes a page of it afterwards. There is no time limit in this: a peer that is stopped keeps its
// pages, until it goes on or dies. Closing an endpoint is no proof of anything, and is not taken for one.
//
// The rules are in a pure core ([core]); loop.go gives it what happens and carries out what it answers; uc.c is UCX.
package ucx
