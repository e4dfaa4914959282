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
	lanes      []cursor
	pages      uint32 // complete ones
	bytes      uint64
	sent       bool
	completion *brokerv1.Completion
	done       bool
	err        error
}

// cursor is where a lane's next part belongs.
type cursor struct {
	place  uint32 // of the page that is under way, or at least Pages after the last
	offset uint64
	ended  bool
}

// Arrival is something that came in the stream, or in a lane beside it. The set is closed.
type Arrival interface{ arrival() }

type (
	// Part of a page, over lane 0. A lane's parts come in order: its places from the first, offsets from 0 without gap or
	// overlap, whole pages.
	Part struct {
		Place  uint32
		Offset uint32
		Length uint64
	}
	// LanePart is a part over any lane.
	LanePart struct {
		Part
		Lane uint32
	}
	// LaneEnded is the end of a lane other than 0; Err nil: with status OK, so all its pages must be there.
	LaneEnded struct {
		Lane uint32
		Err  error
	}
	// Sent says that all pages were sent. The shell steps it once each lane but 0 has ended.
	Sent struct{ Pages uint32 }
	// Completed carries the Completion, after Sent.
	Completed struct{ Completion *brokerv1.Completion }
	// Ended is the end of the stream; Err nil: with status OK.
	Ended struct{ Err error }
)

func (Part) arrival()      {}
func (LanePart) arrival()  {}
func (LaneEnded) arrival() {}
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
func NewReceiver(e *Expectation) *Receiver { return &Receiver{e: e, lanes: make([]cursor, 1)} }

// Split says that the pages come over so many lanes, 1 to Pages: place p over lane p % lanes, lane 0 being the Pull's own
// stream. It is called before the first Step.
func (r *Receiver) Split(lanes uint32) error {
	if lanes < 1 || lanes > max(r.e.Pages, 1) || r.bytes > 0 || len(r.lanes) > 1 {
		return errs.New(errs.Internal, "pull: %d lanes for %d pages after %d bytes", lanes, r.e.Pages, r.bytes)
	}
	r.lanes = make([]cursor, lanes)
	for i := range r.lanes {
		r.lanes[i].place = uint32(i)
	}
	return nil
}

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
		return r.part(LanePart{Part: a})
	case LanePart:
		return r.part(a)
	case LaneEnded:
		return Progress{}, r.laneEnded(a)
	case Sent:
		return r.allSent(a)
	case Completed:
		return r.completed(a)
	case Ended:
		return r.ended(a)
	}
	return Progress{}, errs.New(errs.Internal, "pull: unknown arrival %T", a)
}

func (r *Receiver) part(a LanePart) (Progress, error) {
	size, lanes := r.e.PageBytes, uint32(len(r.lanes))
	if a.Lane >= lanes {
		return Progress{}, errs.New(errs.Corrupt, "pull: page %d over lane %d of %d", a.Place, a.Lane, lanes)
	}
	switch c := &r.lanes[a.Lane]; {
	case r.sent:
		return Progress{}, errs.New(errs.Corrupt, "pull: part of page %d after all %d were sent", a.Place, r.e.Pages)
	case c.ended:
		return Progress{}, errs.New(errs.Corrupt, "pull: part of page %d after the end of lane %d", a.Place, a.Lane)
	case a.Place >= r.e.Pages:
		return Progress{}, errs.New(errs.Corrupt, "pull: page %d, %d expected", a.Place, r.e.Pages)
	case a.Place%lanes != a.Lane:
		return Progress{}, errs.New(errs.Corrupt, "pull: page %d over lane %d of %d, where it does not belong", a.Place, a.Lane, lanes)
	case a.Place > c.place && c.offset > 0:
		return Progress{}, errs.New(errs.Corrupt, "pull: page %d is short: %d of %d bytes, then page %d", c.place, c.offset, size,
			a.Place)
	case a.Place != c.place:
		return Progress{}, errs.New(errs.Corrupt, "pull: page %d out of order, next is %d", a.Place, c.place)
	case uint64(a.Offset) != c.offset:
		return Progress{}, errs.New(errs.Corrupt, "pull: page %d at offset %d, next is %d", a.Place, a.Offset, c.offset)
	case a.Length == 0:
		return Progress{}, errs.New(errs.Corrupt, "pull: page %d with an empty part", a.Place)
	case a.Length > size-c.offset:
		return Progress{}, errs.New(errs.Corrupt, "pull: page %d with %d bytes at offset %d, a page has %d", a.Place, a.Length,
			a.Offset, size)
	default:
		c.offset += a.Length
		r.bytes += a.Length
		if c.offset < size {
			return Progress{}, nil
		}
		c.place, c.offset = c.place+lanes, 0
		r.pages++
		return Progress{Landed: true, Place: a.Place}, nil
	}
}

func (r *Receiver) laneEnded(a LaneEnded) error {
	if a.Lane == 0 || uint64(a.Lane) >= uint64(len(r.lanes)) {
		return errs.New(errs.Corrupt, "pull: the end of lane %d of %d", a.Lane, len(r.lanes))
	}
	c := &r.lanes[a.Lane]
	switch {
	case a.Err != nil:
		return a.Err
	case c.ended:
		return errs.New(errs.Corrupt, "pull: lane %d ended twice", a.Lane)
	case c.offset > 0:
		return r.short(c)
	case c.place < r.e.Pages && !fault.Off(fault.Counts):
		return errs.New(errs.Corrupt, "pull: lane %d ended before page %d of %d", a.Lane, c.place, r.e.Pages)
	}
	c.ended = true
	return nil
}

func (r *Receiver) short(c *cursor) error {
	return errs.New(errs.Corrupt, "pull: page %d is short: %d of %d bytes", c.place, c.offset, r.e.PageBytes)
}

func (r *Receiver) allSent(a Sent) (Progress, error) {
	if r.sent {
		return Progress{}, errs.New(errs.Corrupt, "pull: sent twice")
	}
	for i := range r.lanes {
		switch c := &r.lanes[i]; {
		case c.offset > 0:
			return Progress{}, r.short(c)
		case i > 0 && !c.ended:
			return Progress{}, errs.New(errs.Corrupt, "pull: all sent, and lane %d has not ended", i)
		}
	}
	if (a.Pages != r.e.Pages || r.pages != r.e.Pages) && !fault.Off(fault.Counts) {
		return Progress{}, errs.New(errs.Corrupt, "pull: %d pages sent, %d arrived, %d expected", a.Pages, r.pages, r.e.Pages)
	}
	r.sent = true
	return Progress{Received: true}, nil
}

func (r *Receiver) completed(a Completed) (Progress, error) {
	switch {
	case !r.sent:
		return Progress{}, errs.New(errs.Corrupt, "pull: completion after %d of %d pages, before all were sent", r.pages, r.e.Pages)
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
		return Progress{}, errs.New(errs.Corrupt, "pull: ended without a completion, after %d of %d pages", r.pages, r.e.Pages)
	}
	r.done = true
	return Progress{Done: true}, nil
}

// Pages that are complete.
func (r *Receiver) Pages() uint32 { return r.pages }

// Bytes that have arrived.
func (r *Receiver) Bytes() uint64 { return r.bytes }

// Completion that has come; nil before.
func (r *Receiver) Completion() *brokerv1.Completion { return r.completion }
