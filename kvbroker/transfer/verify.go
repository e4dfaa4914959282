package transfer

import (
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	"leasehold.dev/protos/pagesum"
)

// Found is what the receiver computed from one page that arrived.
type Found struct {
	Digest  pagesum.Digest // over the RowsOf(place) rows
	Nonzero uint32         // of those rows, the ones with any bit set
}

// Verify compares what arrived and what the sender says with the receiver's expectation: own view first, then each of
// the sender's numbers, its root and MAC, then each page's digest. peer is the source broker as handshaken. found has
// the pages in order. Every error is Corrupt, but Stale for another instance or epoch of the peer... see doc.go.
func Verify(e *Expectation, peer Broker, secret []byte, c *brokerv1.Completion, found []Found) error {
	return nil
}
