package transfer

import (
	"bytes"
	"fmt"

	"leasehold.dev/kvbroker/lease"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/fault"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/proof"
)

// Source follows one Pull at the sending broker: parked until the admission's source lease exists, then fed with what
// the lease's worker seals. Its first error is final: every later Step returns it, so a Pull that has failed cannot be
// completed.
type Source struct {
	own       Broker
	admission *meshv1.Admission
	secret    []byte
	to        []byte // the receiver's instance
	from      uint32
	rows      uint32 // wanted
	pages     uint32

	bound    bool
	lease    lease.ID
	epoch    uint64
	prompt   []byte // digest
	digests  [][]byte
	appended uint32 // rows, by the seals
	finished bool
	received bool
	err      error
}

// Occurrence is something that happened to a Source. The set is closed.
type Occurrence interface{ occurrence() }

type (
	// Bound says that the source lease exists.
	Bound struct {
		Lease        lease.ID
		Epoch        uint64
		Pages        uint32
		Rows         uint32
		PromptDigest []byte // computed from the token ids that the lease's worker presented
	}
	// Sealed carries page seals as the lease table took them: in page order. A repeat with the same numbers is skipped.
	Sealed struct{ Seals []lease.PageSeal }
	// Finished carries the last seals, and the rows that were appended in all.
	Finished struct {
		Seals []lease.PageSeal
		Rows  uint32
	}
	// Received is the receiver's acknowledgement, after PullSent.
	Received struct {
		Pages uint32
		Bytes uint64
	}
	// Lost says that the lease is not valid any more, or that the worker has refused. Err is what the receiver is told.
	Lost struct{ Err error }
)

func (Bound) occurrence()    {}
func (Sealed) occurrence()   {}
func (Finished) occurrence() {}
func (Received) occurrence() {}
func (Lost) occurrence()     {}

// Send is what the shell sends next, in this order.
type Send struct {
	Places     []uint32             // these pages, whole
	Sent       bool                 // then PullSent{Pages()}
	Completion *brokerv1.Completion // then the Completion, and the stream ends OK
}

// NewSource checks a PullOpen against its admission, whose signature was checked, and against this broker.
//
//	Stale    meant for another instance of this broker
//	Invalid  nothing to move, or the admission is for other weights
//	Corrupt  the receiver's numbers are not the admission's, or a field is missing
func NewSource(own Broker, a *meshv1.Admission, open *brokerv1.PullOpen) (*Source, error) {
	if !bytes.Equal(open.GetToInstance(), own.Instance) && !fault.Off(fault.Epoch) {
		return nil, errs.New(errs.Stale, "pull: for instance %s, this is %s", short(open.GetToInstance()), short(own.Instance))
	}
	if !bytes.Equal(a.GetModelRevision(), own.ModelRevision) {
		return nil, errs.New(errs.Invalid, "pull: admission for weights %s, this broker has %s", short(a.GetModelRevision()),
			short(own.ModelRevision))
	}
	if len(open.Secret) != proof.SecretSize || len(open.FromInstance) != proof.IDSize {
		return nil, errs.New(errs.Corrupt, "pull: secret of %d and instance of %d bytes", len(open.Secret), len(open.FromInstance))
	}
	n, rows, pages, err := numbers(a.PromptTokens, open.FromToken)
	if err != nil {
		return nil, err
	}
	if (open.Rows != rows || open.Pages != pages) && !fault.Off(fault.Counts) {
		return nil, errs.New(errs.Corrupt, "pull: %d rows in %d pages asked, %d tokens from %d have %d in %d", open.Rows, open.Pages,
			n, open.FromToken, rows, pages)
	}
	return &Source{own: own, admission: a, secret: bytes.Clone(open.Secret), to: bytes.Clone(open.FromInstance),
		from: open.FromToken, rows: rows, pages: pages}, nil
}

// Step takes one occurrence and says what to send.
func (s *Source) Step(o Occurrence) (Send, error) {
	if s.err != nil {
		return Send{}, s.err
	}
	send, err := s.step(o)
	if err != nil {
		s.err = err
		return Send{}, err
	}
	return send, nil
}

func (s *Source) step(o Occurrence) (Send, error) {
	switch o := o.(type) {
	case Bound:
		return s.bind(o)
	case Sealed:
		return s.seal(o.Seals)
	case Finished:
		return s.finish(o)
	case Received:
		return s.complete(o)
	case Lost:
		if o.Err == nil {
			return Send{}, errs.New(errs.Unavailable, "pull: the source lease was lost")
		}
		return Send{}, fmt.Errorf("pull: %w", o.Err)
	}
	return Send{}, errs.New(errs.Internal, "pull: unknown occurrence %T", o)
}

func (s *Source) bind(o Bound) (Send, error) {
	if s.bound {
		return Send{}, errs.New(errs.Invalid, "pull: a second source lease")
	}
	if (o.Pages != s.pages || o.Rows != s.rows) && !fault.Off(fault.Counts) {
		return Send{}, errs.New(errs.Corrupt, "pull: lease of %d rows in %d pages, %d in %d asked", o.Rows, o.Pages, s.rows, s.pages)
	}
	if !bytes.Equal(o.PromptDigest, s.admission.PromptDigest) && !fault.Off(fault.PromptDigest) {
		return Send{}, errs.New(errs.Corrupt, "pull: the lease is for prompt %s, the admission for %s", short(o.PromptDigest),
			short(s.admission.PromptDigest))
	}
	s.bound, s.lease, s.epoch, s.prompt = true, o.Lease, o.Epoch, bytes.Clone(o.PromptDigest)
	return Send{}, nil
}

func (s *Source) seal(seals []lease.PageSeal) (Send, error) {
	var send Send
	if !s.bound {
		return Send{}, errs.New(errs.Invalid, "pull: a seal before the source lease")
	}
	for _, n := range seals {
		next := uint32(len(s.digests))
		switch {
		case n.Index < next && bytes.Equal(s.digests[n.Index], n.Digest[:]) && n.Rows == rowsOf(s.rows, n.Index):
			continue
		case n.Index != next || next >= s.pages:
			return Send{}, errs.New(errs.Corrupt, "pull: page %d sealed, next is %d of %d", n.Index, next, s.pages)
		case n.Rows != rowsOf(s.rows, next) && !fault.Off(fault.Counts):
			return Send{}, errs.New(errs.Corrupt, "pull: page %d sealed with %d rows, its place holds %d", next, n.Rows,
				rowsOf(s.rows, next))
		case n.Digest.IsZero() && !fault.Off(fault.Digest):
			return Send{}, errs.New(errs.Corrupt, "pull: page %d sealed without a digest", next)
		}
		s.digests = append(s.digests, bytes.Clone(n.Digest[:]))
		s.appended += n.Rows
		send.Places = append(send.Places, next)
	}
	return send, nil
}

func (s *Source) finish(o Finished) (Send, error) {
	if s.finished {
		return Send{}, errs.New(errs.Invalid, "pull: finished twice")
	}
	send, err := s.seal(o.Seals)
	if err != nil {
		return Send{}, err
	}
	if (o.Rows != s.appended || s.appended != s.rows || uint32(len(s.digests)) != s.pages) && !fault.Off(fault.Counts) {
		return Send{}, errs.New(errs.Corrupt, "pull: finished with %d rows, %d appended in %d pages, %d in %d asked", o.Rows,
			s.appended, len(s.digests), s.rows, s.pages)
	}
	s.finished, send.Sent = true, true
	return send, nil
}

func (s *Source) complete(o Received) (Send, error) {
	switch want := uint64(s.pages) * s.own.PageBytes; {
	case !s.finished:
		return Send{}, errs.New(errs.Corrupt, "pull: received %d pages before all were sent", o.Pages)
	case s.received:
		return Send{}, errs.New(errs.Corrupt, "pull: received twice")
	case (o.Pages != s.pages || o.Bytes != want) && !fault.Off(fault.Counts):
		return Send{}, errs.New(errs.Corrupt, "pull: received %d pages of %d bytes in all, %d of %d were sent", o.Pages, o.Bytes,
			s.pages, want)
	}
	c := &brokerv1.Completion{
		AdmissionId:         s.admission.Id,
		Lease:               proof.LeaseHash(s.lease[:]),
		Instance:            s.own.Instance,
		Epoch:               s.epoch,
		DestinationInstance: s.to,
		Tenant:              s.admission.Tenant,
		ModelRevision:       s.own.ModelRevision,
		LayoutHash:          s.own.LayoutHash,
		FromToken:           s.from,
		Rows:                s.appended,
		Pages:               uint32(len(s.digests)),
		PromptDigest:        s.prompt,
		Digests:             s.digests,
	}
	misstate(c)
	if err := proof.Seal(s.secret, c); err != nil {
		return Send{}, err
	}
	s.received = true
	return Send{Completion: c}, nil
}

// Want is what the source lease must be for.
func (s *Source) Want() (from, rows, pages uint32) { return s.from, s.rows, s.pages }

// Pages that are sealed so far.
func (s *Source) Pages() uint32 { return uint32(len(s.digests)) }

// Appended is how many rows were appended so far, by the seals.
func (s *Source) Appended() uint32 { return s.appended }

// Sealed is the digest of each sealed page by place, for a look at the pages at rest. It is not to be changed.
func (s *Source) Sealed() [][]byte { return s.digests }

// RowsOf is how many rows a place holds.
func (s *Source) RowsOf(place uint32) uint32 { return rowsOf(s.rows, place) }

// Root over the ordered digests, for the worker's verdict; nil before Finished.
func (s *Source) Root() []byte {
	if !s.finished || s.err != nil {
		return nil
	}
	return proof.Root(s.secret, s.digests)
}

// Err is the error that ended this Source; nil: none yet.
func (s *Source) Err() error { return s.err }
