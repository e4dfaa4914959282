package transfer

import (
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

// Broker is what one side of a transfer knows of a broker: of itself, or of a peer from the handshake.
type Broker struct {
	Instance      []byte
	Epoch         uint64
	ModelRevision []byte
	LayoutHash    []byte
	PageBytes     uint64
}

// Expectation is what the receiver will accept, from its own data only.
type Expectation struct {
	Admission     []byte
	Tenant        string
	ModelRevision []byte
	LayoutHash    []byte
	PromptDigest  []byte // computed from the token ids
	Destination   []byte // own instance
	From          uint32
	Rows          uint32 // n-1-from
	Pages         uint32
	PageBytes     uint64
}

// Expect derives what a transfer of rows [from, n-1) must bring. own is the receiving broker; ids are all n token ids
// as its own worker presented them.
//
//	Invalid  nothing to move, from is not a page's first row, or the admission is for other weights
//	Corrupt  the ids are not the admission's
func Expect(a *meshv1.Admission, own Broker, ids []int32, from uint32) (Expectation, error) {
	return Expectation{}, nil
}

// RowsOf is the number of rows in one moved page.
func (e *Expectation) RowsOf(place uint32) uint32 { return 0 }
