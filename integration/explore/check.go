package explore

import (
	"fmt"

	"leasehold.dev/gpu/pool"
	"leasehold.dev/kvbroker/lease"
	"leasehold.dev/protos/errs"
)

// check looks at a state: the first thing that must not be.
func (w *world) check() error {
	if w.bad != nil {
		return w.bad
	}
	for i := range w.brokers {
		if b := &w.brokers[i]; b.up {
			if err := w.checkBroker(b); err != nil {
				return fmt.Errorf("broker %s: %w", b.name(), err)
			}
		}
	}
	return nil
}

// owner of a page, as the table says.
type owner struct {
	info  lease.Info
	held  bool
	dirty bool
}

func (w *world) checkBroker(b *broker) error {
	snap := b.table.Snapshot()
	var own [maxPages]owner
	charges := map[string]uint32{}
	for _, l := range snap.Leases {
		charges[l.Tenant] += l.Pages
		pages := b.table.Pages(l.Lease)
		if uint32(len(pages)) != l.Pages {
			return fmt.Errorf("a lease of %d pages has %d", l.Pages, len(pages))
		}
		for _, p := range pages {
			if own[p.Page].held {
				return fmt.Errorf("page %d is in two leases", p.Page)
			}
			own[p.Page] = owner{info: l, held: true}
		}
	}
	for _, z := range b.dirty {
		for _, p := range z.Pages {
			if own[p].held || own[p].dirty {
				return fmt.Errorf("page %d is to be cleared, and belongs to a lease or is to be cleared twice", p)
			}
			own[p].dirty = true
		}
	}
	if err := accounts(b, snap, charges, own[:snap.Pages]); err != nil {
		return err
	}
	for p := range snap.Pages {
		if err := w.checkPage(b, p, own[p]); err != nil {
			return fmt.Errorf("page %d: %w", p, err)
		}
	}
	return nil
}

// accounts adds up pages and charges.
func accounts(b *broker, snap lease.Snapshot, charges map[string]uint32, own []owner) error {
	var free, total uint32
	for _, o := range own {
		if !o.held && !o.dirty {
			free++
		}
	}
	for _, n := range snap.States {
		total += n
	}
	if total != snap.Pages || snap.States[lease.Free] != free || b.table.Free() != free {
		return fmt.Errorf("%d pages in all, the table counts %d; %d are free, the table counts %d", snap.Pages, total, free, b.table.Free())
	}
	for _, t := range snap.Tenants {
		if t.Pages != charges[t.Tenant] || t.Quota > 0 && t.Pages > t.Quota {
			return fmt.Errorf("%s is charged for %d pages, its leases have %d, its quota is %d", t.Tenant, t.Pages, charges[t.Tenant], t.Quota)
		}
		delete(charges, t.Tenant)
	}
	for t, n := range charges {
		if n > 0 {
			return fmt.Errorf("%s has %d pages and is charged for none", t, n)
		}
	}
	return nil
}

func (w *world) checkPage(b *broker, p uint32, o owner) error {
	dead := !o.held || o.info.State == lease.Releasing || o.info.State == lease.Quarantine
	if dead && b.tags[p].Slot() != pool.Nobody {
		return fmt.Errorf("it is %s and its tag is still a tenant's: %v", o.word(), b.tags[p])
	}
	if !o.held && !o.dirty && b.mem[p] != (content{}) {
		return fmt.Errorf("it is free and not zero: %v", b.mem[p])
	}
	tenant := ""
	for k := range w.workers {
		for i := range w.workers[k].leases {
			l := &w.workers[k].leases[i]
			if w.plan.at[k] != int(b.id) || l.inc != b.inc {
				continue
			}
			if err := w.checkTable(b, p, o, l, &tenant); err != nil {
				return fmt.Errorf("%s's page table for request %d: %w", workerName(k), l.req, err)
			}
		}
	}
	return w.checkMovers(b, p, o)
}

func (o owner) word() string {
	switch {
	case o.held:
		return o.info.State.String()
	case o.dirty:
		return "being cleared"
	}
	return "free"
}

// checkTable looks at one page table that may have the page. It can touch the page until it is taken away.
func (w *world) checkTable(b *broker, p uint32, o owner, l *wlease, tenant *string) error {
	for _, t := range l.pages {
		if t.Page != p {
			continue
		}
		r := &w.plan.reqs[l.req]
		if !o.held {
			return fmt.Errorf("the page is %s and could still be touched", o.word())
		}
		if o.info.Tenant != r.Tenant || o.info.Admission != lease.Admission(r.admission.Id) {
			return fmt.Errorf("the page is %s's now, and could still be touched for %s", o.info.Tenant, r.Tenant)
		}
		if t.Tag.Slot() == pool.Nobody || b.tags[p].Masked() != t.Tag.Masked() {
			continue // the kernels refuse it
		}
		if o.info.Lease != l.ref.Lease && !r.local() {
			return fmt.Errorf("the page can be read, and is of another lease")
		}
		if *tenant != "" && *tenant != r.Tenant {
			return fmt.Errorf("the page can be read by %s and by %s", *tenant, r.Tenant)
		}
		*tenant = r.Tenant
		if by := b.mem[p].by; by != 0 && by != l.req+1 {
			return fmt.Errorf("the page can be read, and holds what request %d wrote", by-1)
		}
	}
	return nil
}

// checkMovers looks at the movers that may touch the page.
func (w *world) checkMovers(b *broker, p uint32, o owner) error {
	for i := range b.held {
		h := &b.held[i]
		if h.dest == nil || h.dest.phase != receiving || w.plan.reqs[h.req].local() {
			continue
		}
		for _, q := range h.dest.pages {
			if q == p && (!o.held || o.info.Lease != h.ref.Lease) {
				return fmt.Errorf("it is %s and a mover may still write it", o.word())
			}
		}
	}
	for _, s := range b.parked {
		if !s.bound || w.plan.reqs[s.req].local() {
			continue
		}
		for _, q := range s.pages {
			if q == p && (!o.held || o.info.Lease != s.ref.Lease) {
				return fmt.Errorf("it is %s and a mover may still read it", o.word())
			}
		}
	}
	return nil
}

// settle lets everybody do what is left to do, from w on, and expects the baseline: first without any deadline, then with all
// deadlines passed, at last with all processes ended. It returns what it did. w is used up.
func (w *world) settle() (done []action, err error) {
	w.upsets = 0
	var todo []action
	do := func(a action) error {
		done = append(done, a)
		w.do(a)
		return w.check()
	}
	for _, last := range []action{{kind: aDeadlines}, {kind: aEnds}, {}} {
		for steps := 0; steps < 500; steps++ {
			todo = w.actions(todo[:0])
			a, ok := turn(todo, steps)
			if !ok {
				break // nothing but new work is left
			}
			if err := do(a); err != nil {
				return done, err
			}
		}
		if err := w.baseline(); err == nil || last == (action{}) {
			return done, err
		}
		if err := do(last); err != nil {
			return done, err
		}
	}
	return done, nil
}

// turn takes one of what can be done, each in its turn, but for what asks for pages.
func turn(todo []action, n int) (action, bool) {
	for i := range todo {
		if a := todo[(n+i)%len(todo)]; a.kind != aAsk && a.kind != aRun {
			return a, true
		}
	}
	return action{}, false
}

// deadlines pass: requests fail, and every lease's timer goes off.
func (w *world) deadlines() {
	for i := range w.calls {
		w.fail(&w.plan.reqs[i])
	}
	for i := range w.brokers {
		b := &w.brokers[i]
		for _, h := range append([]held(nil), b.held...) {
			w.report(b, lease.Expire{Lease: h.ref.Lease})
		}
	}
}

// baseline says whether the pools are as they were at the start.
func (w *world) baseline() error {
	for i := range w.brokers {
		b := &w.brokers[i]
		if !b.up {
			return errs.New(errs.Internal, "broker %s is down", b.name())
		}
		s := b.table.Snapshot()
		if s.States[lease.Free] != s.Pages || len(s.Leases)+len(s.Tenants)+len(b.held)+len(b.parked)+len(b.dirty) > 0 || s.Draining != "" {
			return errs.New(errs.Internal, "everybody has done what was left to do, and broker %s is not at its baseline: pages by state %v, %d leases, %d parked, draining %q",
				b.name(), s.States, len(s.Leases), len(b.parked), s.Draining)
		}
	}
	return nil
}

// flags are what a search counts of a state: bit 0 a request has succeeded, bit 1 pages are in quarantine.
func (w *world) flags() (f uint8) {
	for i := range w.calls {
		if w.calls[i].out == succeeded {
			f |= 1
		}
	}
	for i := range w.brokers {
		if b := &w.brokers[i]; b.up && b.table.Snapshot().States[lease.Quarantine] > 0 {
			f |= 2
		}
	}
	return f
}
