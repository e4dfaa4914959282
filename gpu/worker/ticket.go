package worker

import (
	"bytes"
	"time"

	"leasehold.dev/protos/errs"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/proof"
)

// Side is which half of an admission a worker serves.
type Side uint8

// Sides.
const (
	Prefill Side = iota
	Decode
)

// Ticket checks everything about a signed admission that does not depend on the side's limits: signature, digest of the
// ids, that it names this worker, its broker and its weights, that the ids are of the vocabulary, and the deadline.
func (h *Host[B]) Ticket(l *Link[B], side Side, s *meshv1.SignedAdmission, ids []int32) (*meshv1.Admission, error) {
	a, err := proof.Open(h.key, s, ids)
	if err != nil {
		return nil, err
	}
	worker, broker := a.Decode, a.DecodeBroker
	if side == Prefill {
		worker, broker = a.Prefill, a.PrefillBroker
	}
	switch {
	case worker != h.id:
		return nil, errs.New(errs.Invalid, "admission names worker %q, this is %q", worker, h.id)
	case broker != l.Facts.Broker:
		return nil, errs.New(errs.Stale, "admission names broker %q, worker %s is attached to %q", broker, h.id, l.Facts.Broker)
	case !bytes.Equal(a.ModelRevision, h.model.Revision[:]):
		return nil, errs.New(errs.Invalid, "admission names model revision %x, worker %s has %x", a.ModelRevision, h.id, h.model.Revision)
	case !time.Now().Before(Deadline(a)):
		return nil, errs.New(errs.Unavailable, "admission: its deadline passed %v ago", time.Since(Deadline(a)).Round(time.Millisecond))
	}
	for i, id := range ids {
		if id < 0 || uint32(id) >= h.model.Config.Vocab {
			return nil, errs.New(errs.Invalid, "token %d of the prompt has id %d, the vocabulary has %d", i, id, h.model.Config.Vocab)
		}
	}
	return a, nil
}

// Deadline of an admission.
func Deadline(a *meshv1.Admission) time.Time { return time.UnixMilli(a.DeadlineUnixMs) }
