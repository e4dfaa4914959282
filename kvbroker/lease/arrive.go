package lease

import "leasehold.dev/protos/errs"

func (t *Table) pullStarted(ev PullStarted) error {
	e, err := t.live(ev.Lease)
	if err != nil {
		return err
	}
	if e.role == Solo || e.fromSource || e.role == Destination && e.state != Reserved {
		return errs.New(errs.Invalid, "pull: %v lease %s is %v", e.role, e.id, e.state)
	}
	e.movers++
	return nil
}

func (t *Table) pullEnded(s *step, ev PullEnded) error {
	e, err := t.reported(s, ev.Lease)
	if e == nil {
		return err
	}
	if e.movers == 0 {
		return s.ignore(e.id, "no mover is left")
	}
	e.movers--
	switch {
	case e.state.ended():
		t.prove(s, e)
	case !ev.OK:
		t.fail(s, e, errs.Unavailable, "the transfer broke")
	case e.role == Source && !e.finished:
		t.fail(s, e, errs.Unavailable, "the reader left before the lease was finished")
	case e.role == Source && e.movers == 0:
		t.release(s, e)
	}
	return nil
}

func (t *Table) arrived(s *step, ev Arrived) error {
	e, err := t.reported(s, ev.Lease)
	if e == nil {
		return err
	}
	switch {
	case e.role != Destination || e.fromSource || ev.Place >= e.moved:
		return errs.New(errs.Corrupt, "arrived: page %d at %v lease %s, which awaits %d", ev.Place, e.role, e.id, e.moved)
	case e.state.ended():
		return s.ignore(e.id, "ended before: "+e.end.reason)
	case e.movers == 0:
		return errs.New(errs.Corrupt, "arrived: page %d at %v lease %s without a mover", ev.Place, e.state, e.id)
	case t.pages[e.pages[ev.Place]].state != Reserved:
		return s.ignore(e.id, "the page has arrived before")
	}
	t.set(e.pages[ev.Place], Staged)
	if e.staged++; e.staged == e.moved {
		e.state = Staged
	}
	return nil
}

func (t *Table) verify(ev Verify) error {
	e, err := t.live(ev.Lease)
	if err != nil {
		return err
	}
	if e.state != Staged || e.movers > 0 {
		return errs.New(errs.Invalid, "verify: lease %s is %v with %d of %d pages arrived and %d movers", e.id, e.state,
			e.staged, e.moved, e.movers)
	}
	for _, p := range e.pages[:e.moved] {
		t.set(p, Verifying)
	}
	e.state = Verifying
	return nil
}

func (t *Table) verified(s *step, ev Verified) error {
	e, err := t.live(ev.Lease)
	if err != nil {
		return err
	}
	if e.state != Verifying {
		return errs.New(errs.Invalid, "verified: lease %s is %v", e.id, e.state)
	}
	full := e.rows / pageTokens
	for i, p := range e.pages {
		t.set(p, Owned)
		if t.pages[p].tagged {
			continue // handed over with its tag
		}
		t.pages[p].sealed = uint32(i) < full
		t.tag(s, e, p)
	}
	if !e.fromSource {
		e.first = full
	}
	e.state = Owned
	s.do(t.granted(e))
	s.do(e.record(WasOwned, ""))
	return nil
}

func (t *Table) transferFailed(s *step, ev TransferFailed) error {
	e, err := t.reported(s, ev.Lease)
	switch {
	case e == nil:
		return err
	case e.role != Destination:
		return errs.New(errs.Invalid, "transfer failed: lease %s is a %v's", e.id, e.role)
	case e.state.ended():
		return s.ignore(e.id, "ended before: "+e.end.reason)
	case e.state == Owned:
		return s.ignore(e.id, "the transfer was verified")
	}
	t.fail(s, e, ev.Kind, ev.Reason)
	return nil
}

func (t *Table) handover(s *step, ev Handover) error {
	from, err := t.live(ev.From)
	if err != nil {
		return err
	}
	to, err := t.live(ev.To)
	if err != nil {
		return err
	}
	switch {
	case !from.finished || from.movers > 0:
		return errs.New(errs.Invalid, "handover: %v lease %s is %v with %d movers", from.role, from.id, from.state, from.movers)
	case !to.fromSource || to.state != Reserved:
		return errs.New(errs.Invalid, "handover: %v lease %s is %v", to.role, to.id, to.state)
	case from.tenant != to.tenant || from.admission != to.admission:
		return errs.New(errs.Corrupt, "handover: leases %s and %s are not of one admission", from.id, to.id)
	case from.rows != to.rows:
		return errs.New(errs.Corrupt, "handover: %d rows, the destination expects %d", from.rows, to.rows)
	case t.pairsLeft() == 0:
		return errs.New(errs.Exhausted, "handover: no tag is left in this instance")
	}
	for _, p := range from.pages {
		t.set(p, Staged)
	}
	if full := from.rows / pageTokens; full < to.moved {
		tail := from.pages[full]
		t.untag(s, tail)
		t.pages[tail].generation = t.nextPair()
		from.seals = from.seals[:full]
	}
	s.do(from.record(WasHandedOver, ""))
	to.pages = append(from.pages, to.pages...)
	to.seals, to.staged, to.state = from.seals, to.moved, Staged
	from.end = ending{from.by.attach, errs.Stale, "handed over"}
	t.forget(from)
	return nil
}
