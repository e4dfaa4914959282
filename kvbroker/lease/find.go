package lease

import (
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/fault"
)

// ending is how a lease ended.
type ending struct {
	attach Attach
	kind   errs.Kind
	reason string
}

func (e ending) error(id ID) error {
	return errs.New(e.kind, "lease %s has ended: %s", id, e.reason)
}

// rememberedEndings bounds the memory for leases that are no more; a later word about an older one is NotFound.
const rememberedEndings = 4096

type endings struct {
	of   map[ID]ending
	ring []ID
	next int
}

func (r *endings) add(id ID, e ending) {
	if len(r.ring) < rememberedEndings {
		r.ring = append(r.ring, id)
	} else {
		delete(r.of, r.ring[r.next])
		r.ring[r.next] = id
		r.next = (r.next + 1) % rememberedEndings
	}
	r.of[id] = e
}

func notFound(id ID) error { return errs.New(errs.NotFound, "lease %s is not known", id) }

// live finds a lease for an ask: one that has not ended.
func (t *Table) live(id ID) (*entry, error) {
	e := t.leases[id]
	if e == nil {
		if end, ok := t.ended.of[id]; ok {
			return nil, end.error(id)
		}
		return nil, notFound(id)
	}
	if e.state.ended() {
		return nil, e.end.error(id)
	}
	return e, nil
}

// reported finds a lease for a report: nil without an error when the report is about one that is no more.
func (t *Table) reported(s *step, id ID) (*entry, error) {
	if e := t.leases[id]; e != nil {
		return e, nil
	}
	if end, ok := t.ended.of[id]; ok {
		return nil, s.ignore(id, "ended before: "+end.reason)
	}
	return nil, notFound(id)
}

// owner checks that r's worker is the lease's, before anything is said about the lease.
func (t *Table) owner(r Ref) error {
	if e := t.leases[r.Lease]; e != nil {
		if e.by.attach != r.Attach {
			return notFound(r.Lease)
		}
		if e.epoch != r.Epoch && !fault.Off(fault.Epoch) {
			return errs.New(errs.Stale, "lease %s is of epoch %d, not %d", r.Lease, e.epoch, r.Epoch)
		}
		return nil
	}
	if end, ok := t.ended.of[r.Lease]; !ok || end.attach != r.Attach {
		return notFound(r.Lease)
	}
	return nil
}

// owned is live for a worker's ask.
func (t *Table) owned(r Ref) (*entry, error) {
	if err := t.owner(r); err != nil {
		return nil, err
	}
	return t.live(r.Lease)
}
