// Package mover moves the pages of one admission from the broker that holds the source lease to the one that holds the
// destination. The receiver pulls.
//
// Four movers are here. The grpc mover is a stream between two brokers: [Open] on the receiving side, [Serve] on the
// sending side; with more connections, its pages come over a lane on each ([Lanes]), or over raw lanes ([OpenRaw],
// [NewRawLanes]). The shm mover ([OpenShared], [ServeShared]) is for two brokers of one host: the same stream says where a sealed page lies, and the receiver copies it from the sender's pool, which it has mapped read-only. The local mover
// ([OpenLocal]) has both sides in one broker and moves no byte. The ucx mover ([OpenHauled], [ServeHauled]) has pages brought by
// the two brokers' mover processes; the stream carries the rest.
//
// # Sending side
//
// The source of pages is a [Source]: Serve asks it for the next sealed page, copies the page part by part into send
// buffers, and asks it for the Completion once the receiver has said what it got, and for its second look when the receiver
// asks for that. Page memory is read only inside
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
// # Raw lanes
//
// A raw lane is a connection without gRPC: the receiver dials it after Attached and sends a [Preamble]; the sender writes each page
// whole, behind a header of place and length, from the memory it lies in, and marks the lane's end. The receiver steps the core
// with the header before it reads a byte, and reads the page into its memory: nothing of ours copies it. With raw lanes the
// stream carries no page, and lane 0 is a raw one too. Everything else is as with lanes.
//
// A Write reads page memory for as long as the receiver lets it wait, so the end of a Pull first closes the connections, which ends
// each Write, and then waits for them. A lane that breaks does not say why: the receiver waits a second for the stream, which does.
//
// The movers check order and sizes only. Whether the pages are the right ones is for package transfer to say.
package mover
