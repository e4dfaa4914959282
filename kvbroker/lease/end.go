package lease

import (
	"cmp"
	"fmt"
	"slices"

	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/fault"
)

// fail moves a live lease to Quarantine.
func (t *Table) fail(s *step, e *entry, k errs.Kind, reason string) {
	pulling := e.role == Source || e.role == Destination && e.state != Owned
	t.fence(s, e, Quarantine, k, reason)
	s.do(e.record(WasQuarantined, reason))
	if e.working {
		s.do(Revoked{e.by.attach, e.id, k, reason})
	}
	if pulling {
		s.do(EndPull{e.id, k, reason})
	}
	t.prove(s, e)
}

// release moves a live lease to Releasing.
func (t *Table) release(s *step, e *entry) {
	t.fence(s, e, Releasing, errs.Stale, "released")
	s.do(e.record(WasReleased, ""))
	t.prove(s, e)
}

// fence takes every page from its owner, before anything else is done about the end.
func (t *Table) fence(s *step, e *entry, to State, k errs.Kind, reason string) {
	s.tags = slices.Grow(s.tags, len(e.pages))
	for _, p := range e.pages {
		t.untag(s, p)
		t.set(p, to)
	}
	e.state = to
	e.end = ending{e.by.attach, k, reason}
}

// prove lets an ended lease's pages go once nobody is left who could touch them. It is the only way to Zeroing.
func (t *Table) prove(s *step, e *entry) {
	if (e.working || e.movers > 0) && !fault.Off(fault.Quarantine) {
		return
	}
	if e.state == Quarantine {
		s.do(e.record(WasProven, ""))
	}
	for _, p := range e.pages {
		t.set(p, Zeroing)
	}
	e.tenant.pages -= uint32(len(e.pages))
	s.do(Zero{e.id, e.pages, e.seals})
	t.forget(e)
}

func (t *Table) forget(e *entry) {
	delete(t.leases, e.id)
	delete(e.by.leases, e.id)
	delete(t.serving, serves{e.admission, e.role})
	t.ended.add(e.id, e.end)
}

func (t *Table) retired(s *step, ev Retired) error {
	if err := t.owner(ev.Ref); err != nil {
		return err
	}
	e, err := t.reported(s, ev.Lease)
	if e == nil {
		return err
	}
	first := e.working
	e.working = false
	switch {
	case e.state.ended():
		if !first {
			return s.ignore(e.id, "retired before")
		}
		t.prove(s, e)
	case !ev.OK:
		t.fail(s, e, ev.Kind, "the worker gave up: "+ev.Reason)
	case e.finished:
		return s.ignore(e.id, "finished before")
	case e.role == Source:
		t.fail(s, e, errs.Unavailable, "the worker retired before it finished")
	case e.role == Destination && e.state != Owned:
		t.fail(s, e, errs.Unavailable, "the worker retired before the pages were its own")
	default:
		t.release(s, e)
	}
	return nil
}

func (t *Table) workerGone(s *step, ev WorkerGone) error {
	w := t.workers[ev.Attach]
	if w == nil {
		return s.ignore(ID{}, "the attach handle is not known")
	}
	delete(t.workers, ev.Attach)
	for _, e := range oldestFirst(w.leases) {
		e.working = false
		switch {
		case e.state.ended():
			t.prove(s, e)
		case !e.finished:
			t.fail(s, e, errs.Unavailable, "its worker is gone")
		}
	}
	return nil
}

func (t *Table) detached(s *step, ev Detached) error {
	w := t.workers[ev.Attach]
	switch {
	case w == nil:
		return s.ignore(ID{}, "the attach handle is not known")
	case len(w.leases) > 0:
		return errs.New(errs.Invalid, "detached: attach handle %s has %d leases", ev.Attach, len(w.leases))
	}
	delete(t.workers, ev.Attach)
	return nil
}

func oldestFirst(m map[ID]*entry) []*entry {
	out := make([]*entry, 0, len(m))
	for _, e := range m {
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b *entry) int { return cmp.Compare(a.seq, b.seq) })
	return out
}

func (t *Table) expire(s *step, ev Expire) error {
	e, err := t.reported(s, ev.Lease)
	switch {
	case e == nil:
		return err
	case e.state == Quarantine:
		return s.ignore(e.id, "in quarantine before: "+e.end.reason)
	case e.state == Releasing: // already Nobody's; from here on it counts against the cap
		for _, p := range e.pages {
			t.set(p, Quarantine)
		}
		e.state = Quarantine
		s.do(e.record(WasQuarantined, "not proven in time"))
	default:
		t.fail(s, e, errs.Unavailable, "the lease expired")
	}
	return nil
}

func (t *Table) revoke(s *step, ev Revoke) error {
	e, err := t.reported(s, ev.Lease)
	switch {
	case e == nil:
		return err
	case e.state.ended():
		return s.ignore(e.id, "ended before: "+e.end.reason)
	}
	t.fail(s, e, ev.Kind, ev.Reason)
	return nil
}

func (t *Table) zeroed(ev Zeroed) error {
	for i, p := range ev.Pages {
		if p >= t.cfg.Pages || t.pages[p].state != Zeroing {
			for _, back := range ev.Pages[:i] {
				t.set(back, Zeroing)
			}
			return errs.New(errs.Invalid, "zeroed: page %d of %d is not to be cleared", p, t.cfg.Pages)
		}
		t.set(p, Free) // so that a page named twice is refused
	}
	t.free = append(t.free, ev.Pages...)
	return nil
}

func (t *Table) drain(s *step, ev Drain) error {
	if t.drained != "" {
		return s.ignore(ID{}, "draining before: "+t.drained)
	}
	if t.drained = ev.Reason; ev.Reason == "" {
		t.drained = "asked to"
	}
	s.do(Draining{t.drained})
	return nil
}

func (t *Table) capReason() string {
	return fmt.Sprintf("%d pages in quarantine, cap %d", t.count[Quarantine], t.cfg.QuarantineCap)
}
