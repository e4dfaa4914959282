// Package mover moves the pages of one admission from the broker that holds the source lease to the one that holds the
// destination. The receiver pulls.
//
// Three movers are here. The grpc mover is a stream between two brokers: [Open] on the receiving side, [Serve] on the
// sending side; with more connections, its pages come over a lane on each ([Lanes]). The shm mover ([OpenShared], [ServeShared]) is for two brokers of one host: the same stream says where a
// sealed page lies, and the receiver copies it from the sender's pool, which it has mapped read-only. The local mover
// ([OpenLocal]) has both sides in one broker and moves no byte.
//
// # Sending side
//
// The source of pages is a [Source]: Serve asks it for the next sealed page, copies the page part by part into send
// buffers, and asks it for the Completion once the receiver has said what it got. Page memory is read only inside
// Source.Read; a send buffer that the transport never gives back is memory lost to the collector, not a page held.
//
// # Receiving side
//
// Parts must come in page order and in offset order in each lane, without gap or repeat: anything else is Corrupt. Each is copied
// once, from the transport's buffers straight to the memory that the caller named. When Receive has returned, nothing
// writes to that memory any more.
//
// A stream that ends with status OK and without a Completion is Corrupt: no success is borrowed from a quiet end.
//
// # Lanes
//
// Place p of a Pull with n lanes comes over lane p % n, and lane 0 is the Pull's own stream. A second stream on one connection
// gains nothing, so each lane has a connection. A lane presents the token that came with Attached, and no message but parts goes
// over it. The first error of any lane ends all of them and the Pull, at both sides: the sender reads no page after ServePull has
// returned, though a lane's handler may still wait for its transport; the receiver's goroutines end before Receive does. The
// sender's word that all is sent counts when each lane has ended with its last page.
//
// The movers check order and sizes only. Whether the pages are the right ones is for package transfer to say.
package mover
