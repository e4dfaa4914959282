package pair

import (
	"leasehold.dev/gpu/layout"
	"leasehold.dev/kvbroker/ucx"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/pagesum"
)

// setup is what a child is told first.
type setup struct {
	Pages      uint32
	Layout     layout.Layout
	Transports []string
	PlainTCP   bool
	Lanes      int
	NoDigest   bool
}

// request is a call of a child's Mover.
type request struct {
	Op      string // expect, provide, send, end, counts
	ID      ucx.ID
	Expect  *ucx.Expectation `json:",omitempty"`
	Address []byte           `json:",omitempty"`
	Window  uint32           `json:",omitempty"`
	Places  []uint32         `json:",omitempty"`
	Pages   []uint32         `json:",omitempty"`
}

// reply is what a child says: its address first, then answers to requests, in order, and events in between.
type reply struct {
	Address []byte      `json:",omitempty"`
	Answer  bool        `json:",omitempty"`
	Error   string      `json:",omitempty"`
	Kind    errs.Kind   `json:",omitempty"`
	Counts  *ucx.Counts `json:",omitempty"`
	Events  []event     `json:",omitempty"`
}

type event struct {
	Kind    string
	ID      ucx.ID
	Place   uint32
	Digest  pagesum.Digest
	Nonzero uint32
	Error   string
	ErrKind errs.Kind
}

func toWire(list []ucx.Event) []event {
	out := make([]event, len(list))
	for i, e := range list {
		switch e := e.(type) {
		case ucx.Landed:
			out[i] = event{Kind: "landed", ID: e.ID, Place: e.Place, Digest: e.Digest, Nonzero: e.Nonzero}
		case ucx.Sent:
			out[i] = event{Kind: "sent", ID: e.ID, Place: e.Place}
		case ucx.Failed:
			out[i] = event{Kind: "failed", ID: e.ID, Place: e.Place, Error: e.Err.Error(), ErrKind: errs.KindOf(e.Err)}
		case ucx.Drained:
			out[i] = event{Kind: "drained", ID: e.ID}
		case ucx.Stuck:
			out[i] = event{Kind: "stuck"}
		}
	}
	return out
}

func fromWire(list []event) []ucx.Event {
	out := make([]ucx.Event, len(list))
	for i, e := range list {
		switch e.Kind {
		case "landed":
			out[i] = ucx.Landed{ID: e.ID, Place: e.Place, Digest: e.Digest, Nonzero: e.Nonzero}
		case "sent":
			out[i] = ucx.Sent{ID: e.ID, Place: e.Place}
		case "failed":
			out[i] = ucx.Failed{ID: e.ID, Place: e.Place, Err: errs.New(e.ErrKind, "%s", e.Error)}
		case "drained":
			out[i] = ucx.Drained{ID: e.ID}
		case "stuck":
			out[i] = ucx.Stuck{}
		}
	}
	return out
}
