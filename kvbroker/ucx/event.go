package ucx

import (
	"time"

	"leasehold.dev/protos/pagesum"
)

// Event is something that a Mover has to say. The set is closed.
type Event interface{ event() }

type (
	// Landed says that a page has arrived whole, and what it is, digested where it lies.
	Landed struct {
		ID      ID
		Place   uint32
		Digest  pagesum.Digest
		Nonzero uint32    // rows with any bit set
		At      time.Time // when its last byte was there, before it was digested
	}
	// Sent says that a page is not read any more.
	Sent struct {
		ID    ID
		Place uint32
	}
	// Failed says that a transfer will not come to a good end. Once for each; it still waits for its End.
	Failed struct {
		ID    ID
		Place uint32
		Err   error
	}
	// Stuck says that nothing reaches this Mover any more, not even from itself: its process is to end. Once.
	Stuck struct{}
	// Drained answers an End: no operation of the transfer is left, and there will be none.
	Drained struct{ ID ID }
)

func (Landed) event()  {}
func (Sent) event()    {}
func (Failed) event()  {}
func (Drained) event() {}
func (Stuck) event()   {}

// Counts is what a Mover has done since it was opened.
type Counts struct {
	PagesIn, PagesOut uint64
	Unknown           uint64 // messages for no transfer that is expected
	Refused           uint64 // messages that failed the transfer that they name
	Failures          uint64 // transfers that failed, either way
	Transfers         int    // now, those that wait for operations included
	Operations        int    // now
}
