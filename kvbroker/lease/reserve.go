package lease

import (
	"leasehold.dev/gpu/pool"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/fault"
	"leasehold.dev/protos/pagesum"
)

const pageTokens = pagesum.PageTokens

// pagesFor rows.
func pagesFor(rows uint32) uint32 { return uint32((uint64(rows) + pageTokens - 1) / pageTokens) }

// rowsAt is how many of rows are in the page at place.
func rowsAt(rows, place uint32) uint32 {
	before := uint64(place) * pageTokens
	if uint64(rows) <= before {
		return 0
	}
	return uint32(min(uint64(rows)-before, pageTokens))
}

func (t *Table) attach(ev Attached) error {
	if t.workers[ev.Attach] != nil {
		return errs.New(errs.Invalid, "attach handle %s is taken", ev.Attach)
	}
	t.seq++
	t.workers[ev.Attach] = &worker{attach: ev.Attach, seq: t.seq, name: ev.Worker, pid: ev.PID, epoch: ev.Epoch,
		leases: map[ID]*entry{}}
	return nil
}

func (t *Table) reserve(s *step, ev Reserve) error {
	if err := t.checkShape(ev); err != nil {
		return err
	}
	w := t.workers[ev.Attach]
	if w == nil {
		return errs.New(errs.Stale, "attach handle %s is not known: attach again", ev.Attach)
	}
	take := ev.Pages
	if ev.FromSource {
		take -= ev.Moved
	}
	if err := t.checkRoom(ev, take); err != nil {
		return err
	}
	ten := t.tenants[ev.Tenant]
	if ten == nil {
		t.slots++
		ten = &tenant{name: ev.Tenant, slot: t.slots}
		t.tenants[ev.Tenant] = ten
	}
	ten.pages += take
	t.seq++
	e := &entry{id: ev.Lease, seq: t.seq, admission: ev.Admission, role: ev.Role, tenant: ten, by: w, epoch: w.epoch,
		moved: ev.Moved, rows: ev.Rows, fromSource: ev.FromSource, state: Writing, working: true}
	if e.role == Destination {
		e.state = Reserved
	}
	t.take(s, e, take)
	t.leases[e.id] = e
	w.leases[e.id] = e
	t.serving[serves{e.admission, e.role}] = e.id
	s.do(t.granted(e))
	s.do(e.record(WasReserved, ""))
	return nil
}

func (t *Table) checkShape(ev Reserve) error {
	moves := ev.Role == Destination
	switch {
	case ev.Role < Solo || ev.Role > Source:
		return errs.New(errs.Invalid, "reserve: no such role: %v", ev.Role)
	case ev.Tenant == "":
		return errs.New(errs.Invalid, "reserve: no tenant")
	case ev.Pages == 0:
		return errs.New(errs.Invalid, "reserve: 0 pages")
	case moves != (ev.Moved > 0) || ev.Moved > ev.Pages || ev.FromSource && !moves:
		return errs.New(errs.Invalid, "reserve: %d of %d pages of a %v lease to be moved", ev.Moved, ev.Pages, ev.Role)
	case moves && ev.Moved != pagesFor(ev.Rows), ev.Role == Source && ev.Pages != pagesFor(ev.Rows):
		return errs.New(errs.Invalid, "reserve: %d rows in %d pages, %d moved, of a %v lease", ev.Rows, ev.Pages, ev.Moved,
			ev.Role)
	}
	_, ended := t.ended.of[ev.Lease]
	if ended || t.leases[ev.Lease] != nil {
		return errs.New(errs.Invalid, "reserve: lease id %s is taken", ev.Lease)
	}
	if _, ok := t.serving[serves{ev.Admission, ev.Role}]; ok {
		return errs.New(errs.Invalid, "reserve: admission %s has a %v lease", ev.Admission, ev.Role)
	}
	return nil
}

func (t *Table) checkRoom(ev Reserve, take uint32) error {
	quota, used := uint64(t.cfg.Quota), uint64(0)
	if ten := t.tenants[ev.Tenant]; ten != nil {
		used = uint64(ten.pages)
	}
	switch {
	case ev.Pages > t.cfg.Pages:
		return errs.New(errs.Limit, "reserve: %d pages asked, the pool has %d", ev.Pages, t.cfg.Pages)
	case quota > 0 && uint64(ev.Pages) > quota:
		return errs.New(errs.Limit, "reserve: %d pages asked, the tenant's quota is %d", ev.Pages, quota)
	case t.drained != "":
		return errs.New(errs.Unavailable, "reserve: draining: %s", t.drained)
	case t.over:
		return errs.New(errs.Exhausted, "reserve: %s", t.capReason())
	case quota > 0 && used+uint64(take) > quota:
		return errs.New(errs.Exhausted, "reserve: %d pages asked, the tenant has %d of its quota of %d", take, used, quota)
	case uint64(take) > uint64(len(t.free)):
		return errs.New(errs.Exhausted, "reserve: %d pages asked, %d of %d free", take, len(t.free), t.cfg.Pages)
	case t.crowds(ev, take):
		return errs.New(errs.Exhausted, "reserve: %d pages asked, the tenant has %d and %d are free: of those left free it may hold %d times as many",
			take, used, len(t.free), t.cfg.Share)
	case uint64(take) > t.pairsLeft():
		return errs.New(errs.Exhausted, "reserve: %d pages asked, %d tags left in this instance", take, t.pairsLeft())
	case t.tenants[ev.Tenant] == nil && t.slots >= pool.MaxSlot:
		return errs.New(errs.Exhausted, "reserve: all %d tenant slots of this instance are used", pool.MaxSlot)
	}
	return nil
}

// crowds says that the grant would leave too little for other tenants. Pages of the admission's own other side do not count as
// another request's: both sides of one may fill the pool.
func (t *Table) crowds(ev Reserve, take uint32) bool {
	ten := t.tenants[ev.Tenant]
	if t.cfg.Share == 0 || ten == nil {
		return false
	}
	others := ten.pages
	for role := Solo; role <= Source; role++ {
		if e := t.leases[t.serving[serves{ev.Admission, role}]]; e != nil && e.tenant == ten {
			others -= uint32(len(e.pages))
		}
	}
	return others > 0 && uint64(ten.pages)+uint64(take) > uint64(t.cfg.Share)*uint64(len(t.free)-int(take))
}

// take moves n pages from the free list to e. Destination pages stay Nobody's.
func (t *Table) take(s *step, e *entry, n uint32) {
	e.pages = make([]uint32, n)
	tagged := e.role != Destination || fault.Off(fault.Nobody)
	if tagged {
		s.tags = make([]PageTag, 0, n)
	}
	for i := range e.pages {
		p := t.free[len(t.free)-1]
		t.free = t.free[:len(t.free)-1]
		e.pages[i] = p
		t.pages[p].generation = t.nextPair()
		t.set(p, e.state)
		if tagged {
			t.tag(s, e, p)
		}
	}
}

func (t *Table) granted(e *entry) Granted {
	return Granted{e.id, e.epoch, t.tagsOf(e)}
}

func (t *Table) tagsOf(e *entry) []PageTag {
	out := make([]PageTag, len(e.pages))
	for i, p := range e.pages {
		out[i] = PageTag{p, t.tagOf(e, p)}
	}
	return out
}

func (e *entry) record(k RecordKind, reason string) Record {
	return Record{k, e.id, e.tenant.name, e.role, uint32(len(e.pages)), reason}
}
