package transfer

import (
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"

	"leasehold.dev/kvbroker/lease"
)

// Source follows one Pull at the sending broker: parked until the admission's source lease exists, then fed with seals.
// Its first error is final: every later Step returns it.
type Source struct{}

// Occurrence is something that happened to a Source. The set is closed.
type Occurrence interface{ occurrence() }

type (
	// Bound says that the source lease exists.
	Bound struct {
		Lease lease.ID
		Epoch uint64
		Pages uint32
		Rows  uint32
	}
	// Sealed carries page seals, in page order, each once.
	Sealed struct{ Seals []lease.PageSeal }
	// Finished carries the last seals and the rows that were appended in all.
	Finished struct {
		Seals []lease.PageSeal
		Rows  uint32
	}
	// Received is the receiver's acknowledgement of all pages.
	Received struct {
		Pages uint32
		Bytes uint64
	}
	// Lost says that the lease is not valid any more, or that the worker refused: Err is what the receiver is told.
	Lost struct{ Err error }
)

func (Bound) occurrence()    {}
func (Sealed) occurrence()   {}
func (Finished) occurrence() {}
func (Received) occurrence() {}
func (Lost) occurrence()     {}

// Send is what the shell sends next, in order.
type Send struct {
	Places     []uint32             // whole pages
	Sent       bool                 // then PullSent{Pages}
	Completion *brokerv1.Completion // then the Completion, and the stream ends OK
}

// NewSource checks a PullOpen against its admission and this broker.
func NewSource(own Broker, a *meshv1.Admission, open *brokerv1.PullOpen) (*Source, error) {
	return &Source{}, nil
}

// Step takes one occurrence and says what to send.
func (s *Source) Step(o Occurrence) (Send, error) { return Send{}, nil }

// Want is what the source lease must be for.
func (s *Source) Want() (from, rows, pages uint32) { return 0, 0, 0 }

// Root over the digests, after Finished.
func (s *Source) Root() []byte { return nil }

// Err is the first error.
func (s *Source) Err() error { return nil }
