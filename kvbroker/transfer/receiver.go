package transfer

import (
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/fault"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
)

// Receiver follows one Pull at the receiving broker: it says whether a part of a page may be stored before the shell
// stores it. Its first error is final: every later Step returns it.
type Receiver struct {
	e          *Expectation
	place      uint32 // of the page that is under way
	offset     uint64 // of the next part
	bytes      uint64
	sent       bool
	completion *brokerv1.Completion
	done       bool
	err        error
}

// Arrival is something that came in the stream. The set is closed.
type Arrival interface{ arrival() }

type (
	// Part of a page. Parts come in order: places from 0, offsets from 0 without gap or overlap, whole pages.
	Part struct {
		Place  uint32
		Offset uint32
		Length uint64
	}
	// Sent says that all pages were sent.
	Sent struct{ Pages uint32 }
	// Completed carries the Completion, after Sent.
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
	Landed   bool   // a page is complete once this part is stored
	Place    uint32 // which
	Received bool   // answer with PullReceived{Pages(), Bytes()}
	// Completed: the Completion has come, and no page will. What has arrived can be verified; it is settled only when the
	// stream is Done.
	Completed bool
	Done      bool // the stream has ended well
}

// NewReceiver follows a transfer that must bring e.
func NewReceiver(e *Expectation) *Receiver { return &Receiver{e: e} }

// Step takes one arrival. Errors are Corrupt, or the stream's own.
func (r *Receiver) Step(a Arrival) (Progress, error) {
	if r.err != nil {
		return Progress{}, r.err
	}
	p, err := r.step(a)
	if err != nil {
		r.err = err
		return Progress{}, err
	}
	return p, nil
}

func (r *Receiver) step(a Arrival) (Progress, error) {
	if r.done {
		return Progress{}, errs.New(errs.Corrupt, "pull: %T after the end", a)
	}
	switch a := a.(type) {
	case Part:
		return r.part(a)
	case Sent:
		return r.allSent(a)
	case Completed:
		return r.completed(a)
	case Ended:
		return r.ended(a)
	}
	return Progress{}, errs.New(errs.Internal, "pull: unknown arrival %T", a)
}

func (r *Receiver) part(a Part) (Progress, error) {
	size := r.e.PageBytes
	switch {
	case r.sent:
		return Progress{}, errs.New(errs.Corrupt, "pull: part of page %d after all %d were sent", a.Place, r.e.Pages)
	case a.Place >= r.e.Pages:
		return Progress{}, errs.New(errs.Corrupt, "pull: page %d, %d expected", a.Place, r.e.Pages)
	case a.Place > r.place && r.offset > 0:
		return Progress{}, errs.New(errs.Corrupt, "pull: page %d is short: %d of %d bytes, then page %d", r.place, r.offset, size,
			a.Place)
	case a.Place != r.place:
		return Progress{}, errs.New(errs.Corrupt, "pull: page %d out of order, next is %d", a.Place, r.place)
	case uint64(a.Offset) != r.offset:
		return Progress{}, errs.New(errs.Corrupt, "pull: page %d at offset %d, next is %d", a.Place, a.Offset, r.offset)
	case a.Length == 0:
		return Progress{}, errs.New(errs.Corrupt, "pull: page %d with an empty part", a.Place)
	case a.Length > size-r.offset:
		return Progress{}, errs.New(errs.Corrupt, "pull: page %d with %d bytes at offset %d, a page has %d", a.Place, a.Length,
			a.Offset, size)
	}
	r.offset += a.Length
	r.bytes += a.Length
	if r.offset < size {
		return Progress{}, nil
	}
	r.place, r.offset = r.place+1, 0
	return Progress{Landed: true, Place: a.Place}, nil
}

func (r *Receiver) allSent(a Sent) (Progress, error) {
	switch {
	case r.sent:
		return Progress{}, errs.New(errs.Corrupt, "pull: sent twice")
	case r.offset > 0:
		return Progress{}, errs.New(errs.Corrupt, "pull: page %d is short: %d of %d bytes", r.place, r.offset, r.e.PageBytes)
	case (a.Pages != r.e.Pages || r.place != r.e.Pages) && !fault.Off(fault.Counts):
		return Progress{}, errs.New(errs.Corrupt, "pull: %d pages sent, %d arrived, %d expected", a.Pages, r.place, r.e.Pages)
	}
	r.sent = true
	return Progress{Received: true}, nil
}

func (r *Receiver) completed(a Completed) (Progress, error) {
	switch {
	case !r.sent:
		return Progress{}, errs.New(errs.Corrupt, "pull: completion after %d of %d pages, before all were sent", r.place, r.e.Pages)
	case r.completion != nil:
		return Progress{}, errs.New(errs.Corrupt, "pull: a second completion")
	case a.Completion == nil:
		return Progress{}, errs.New(errs.Corrupt, "pull: an empty completion")
	}
	r.completion = a.Completion
	return Progress{Completed: true}, nil
}

func (r *Receiver) ended(a Ended) (Progress, error) {
	switch {
	case a.Err != nil:
		return Progress{}, a.Err
	case r.completion == nil:
		return Progress{}, errs.New(errs.Corrupt, "pull: ended without a completion, after %d of %d pages", r.place, r.e.Pages)
	}
	r.done = true
	return Progress{Done: true}, nil
}

// Pages that are complete.
func (r *Receiver) Pages() uint32 { return r.place }

// Bytes that have arrived.
func (r *Receiver) Bytes() uint64 { return r.bytes }

// Completion that has come; nil before.
func (r *Receiver) Completion() *brokerv1.Completion { return r.completion }
