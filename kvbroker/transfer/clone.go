package transfer

import "slices"

// Clone returns a Source that goes its own way from here, for who looks at several futures of one state.
func (s *Source) Clone() *Source {
	c := *s
	c.digests = slices.Clone(s.digests)
	return &c
}

// Clone returns a Receiver that goes its own way from here.
func (r *Receiver) Clone() *Receiver {
	c := *r
	c.lanes = slices.Clone(r.lanes)
	return &c
}

// State is what a Receiver of one lane has taken so far, to tell two of them apart: the page under way, its bytes, and whether all was
// sent, a Completion came, the stream has ended well, or it has failed.
type State struct {
	Place                         uint32
	Offset                        uint64
	Sent, Completed, Done, Failed bool
}

// State of r.
func (r *Receiver) State() State {
	return State{r.lanes[0].place, r.lanes[0].offset, r.sent, r.completion != nil, r.done, r.err != nil}
}
