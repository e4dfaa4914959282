package transfer

import (
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
)

// Receiver follows one Pull at the receiving broker. Its first error is final: every later Step returns it.
type Receiver struct{}

// Arrival is something that came in the stream. The set is closed.
type Arrival interface{ arrival() }

type (
	// Part of a page. Parts come in order: places from 0, offsets from 0 without gap or overlap.
	Part struct {
		Place  uint32
		Offset uint32
		Length uint32
	}
	// Sent says that all pages were sent.
	Sent struct{ Pages uint32 }
	// Completed carries the Completion.
	Completed struct{ Completion *brokerv1.Completion }
	// Ended is the end of the stream; Err nil: with status OK.
	Ended struct{ Err error }
)

func (Part) arrival()      {}
func (Sent) arrival()      {}
func (Completed) arrival() {}
func (Ended) arrival()     {}

// Progress says what one arrival brought about.
type Progress struct {
	Place    uint32 // of the page that is now complete, if Landed
	Landed   bool
	Received bool // answer with PullReceived{Pages(), Bytes()}
	Done     bool // the stream has ended well: verify
}

// NewReceiver follows a transfer that must bring e.
func NewReceiver(e *Expectation) *Receiver { return &Receiver{} }

// Step takes one arrival. Errors are Corrupt, or the stream's own.
func (r *Receiver) Step(a Arrival) (Progress, error) { return Progress{}, nil }

// Pages that are complete.
func (r *Receiver) Pages() uint32 { return 0 }

// Bytes that have arrived.
func (r *Receiver) Bytes() uint64 { return 0 }

// Completion that came, nil before Done.
func (r *Receiver) Completion() *brokerv1.Completion { return nil }
