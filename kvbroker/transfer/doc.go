// Package transfer decides what a Pull must prove, on both sides. It is pure: the movers around it do the I/O.
//
// # Receiving
//
// [Expect] derives what must arrive from the admission and the token ids that the receiver's own worker presented. It is
// made before the Pull is opened and never learns anything from the sender; nor does the peer's [Broker], which is from the
// handshake. A [Receiver] then says of every message whether it may be there: parts of pages, in each lane in order, whole,
// once; the lanes' ends; Sent; the Completion; the end. Its caller stores a part only after Step has taken it, and digests each page from memory once it
// has landed (not what was on the wire). When the Completion is there and every mover has let go of the pages, the caller asks
// [Verify]. After that both sides look at their pages once more, the sender before it ends the stream: nothing that was
// computed from them may leave before both looks are over and the stream is Done.
//
// # Sending
//
// A [Source] is made of a PullOpen and parked: it sends nothing before the admission's source lease exists (Bound) and its
// worker seals pages. Numbers in its Completion are sums over the seals, which the append kernel counts; a Finish with
// other numbers fails the Pull. The Completion is made after the receiver has acknowledged all pages, and only if the
// lease was never Lost, so it says that the lease was valid throughout.
//
// # Errors
//
// The first error is final for a Receiver and a Source. The shell ends the stream with it and steps the lease table
// (TransferFailed at the destination, PullEnded without OK at the source). Nothing here is retried: a new try is a new
// admission.
package transfer
