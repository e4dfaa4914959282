package lease

import (
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/fault"
)

func (t *Table) seal(s *step, ev Seal) error {
	e, err := t.owned(ev.Ref)
	if err != nil {
		return err
	}
	if e.role == Destination && e.state != Owned {
		return errs.New(errs.Invalid, "seal: lease %s is %v", e.id, e.state)
	}
	fresh, err := e.checkSeals(ev.Seals, false)
	if err != nil {
		return err
	}
	t.addSeals(s, e, fresh)
	return nil
}

func (t *Table) finish(s *step, ev Finish) error {
	e, err := t.owned(ev.Ref)
	if err != nil {
		return err
	}
	if e.role != Source {
		return errs.New(errs.Invalid, "finish: lease %s is a %v's", e.id, e.role)
	}
	if ev.Rows != e.rows && !fault.Off(fault.Counts) {
		return errs.New(errs.Invalid, "finish: %d rows appended, the lease is for %d", ev.Rows, e.rows)
	}
	fresh, err := e.checkSeals(ev.Seals, true)
	if err != nil {
		return err
	}
	if n := len(e.seals) + len(fresh); n != len(e.pages) && !fault.Off(fault.Counts) {
		return errs.New(errs.Invalid, "finish: %d of %d pages are sealed", n, len(e.pages))
	}
	if e.finished {
		return s.ignore(e.id, "finished before")
	}
	t.addSeals(s, e, fresh)
	e.finished, e.working, e.state = true, false, Sealed
	s.do(e.record(WasFinished, ""))
	return nil
}

// checkSeals returns the seals that are new, without a change to e.
func (e *entry) checkSeals(seals []PageSeal, last bool) ([]PageSeal, error) {
	var fresh []PageSeal
	for _, n := range seals {
		next := e.first + uint32(len(e.seals)+len(fresh))
		switch {
		case n.Index > next || uint64(n.Index) >= uint64(len(e.pages)):
			return nil, errs.New(errs.Invalid, "seal: page %d of %d, next is %d", n.Index, len(e.pages), next)
		case n.Index < e.first:
			return nil, errs.New(errs.Invalid, "seal: page %d was moved whole, next is %d", n.Index, next)
		case n.Index < next:
			if old := sealAt(e.seals, fresh, n.Index-e.first); n != old {
				return nil, errs.New(errs.Corrupt, "seal: page %d with %d rows and digest %s, before with %d and %s", n.Index,
					n.Rows, n.Digest, old.Rows, old.Digest)
			}
			continue
		case n.Digest.IsZero() && !fault.Off(fault.Digest):
			return nil, errs.New(errs.Corrupt, "seal: page %d has no digest", n.Index)
		}
		switch want := e.fullRows(n.Index); {
		case n.Rows != want && !fault.Off(fault.Counts):
			return nil, errs.New(errs.Invalid, "seal: page %d with %d rows, its place holds %d", n.Index, n.Rows, want)
		case want < pageTokens && !last && !fault.Off(fault.Counts):
			return nil, errs.New(errs.Invalid, "seal: page %d with %d rows is for finish", n.Index, want)
		}
		fresh = append(fresh, n)
	}
	return fresh, nil
}

func sealAt(old, fresh []PageSeal, i uint32) PageSeal {
	if int(i) < len(old) {
		return old[i]
	}
	return fresh[int(i)-len(old)]
}

// fullRows is how many rows the page at place has when it is complete.
func (e *entry) fullRows(place uint32) uint32 {
	if e.role == Source {
		return rowsAt(e.rows, place)
	}
	return pageTokens
}

func (t *Table) addSeals(s *step, e *entry, fresh []PageSeal) {
	for _, n := range fresh {
		p := e.pages[n.Index]
		t.pages[p].sealed = true
		t.tag(s, e, p)
		if e.state == Writing {
			t.set(p, Sealed)
		}
	}
	e.seals = append(e.seals, fresh...)
	if e.role == Solo && len(e.seals) == len(e.pages) {
		e.state = Sealed
	}
}
