package explore

import (
	"fmt"
	"slices"

	"leasehold.dev/gpu/pool"
	"leasehold.dev/kvbroker/lease"
	"leasehold.dev/kvbroker/transfer"
	"leasehold.dev/protos/errs"
)

// boot starts broker i: a new instance with an empty pool. Whatever an earlier one granted is void.
func (w *world) boot(i int) error {
	b := &w.brokers[i]
	t, err := lease.New(lease.Config{Pages: w.plan.Pages[i], Quota: w.plan.Quota, Share: w.plan.Share, QuarantineCap: w.plan.QuarantineCap})
	if err != nil {
		return err
	}
	*b = broker{id: b.id, inc: b.inc + 1, up: true, table: t, peer: b.peer}
	return nil
}

// crash ends broker i as kill -9 does: its movers are gone with it, its streams and sockets break.
func (w *world) crash(i int) {
	b := &w.brokers[i]
	*b = broker{id: b.id, inc: b.inc, peer: b.peer}
	for r := range w.pulls {
		w.cut(r)
	}
	for k := range w.workers {
		if n := &w.workers[k]; w.plan.at[k] == i {
			n.attached = false
			for l := range n.leases {
				n.leases[l].dead = true
			}
		}
	}
}

// cut breaks the stream of a Pull, if there is one: what is under way is lost, and both ends see it when they next look.
func (w *world) cut(r int) {
	if p := &w.pulls[r]; p.live {
		p.toA, p.toB, p.cut = nil, nil, true
	}
}

func (b *broker) name() string { return string(rune('A' + b.id)) }

// step is the shell's step: the event, as the plan's bug lets it through, and the effects.
func (w *world) step(b *broker, ev lease.Event) ([]lease.Effect, error) {
	w.writeLate(b)
	var all []lease.Effect
	for _, ev := range w.plan.Bug.events(b, ev) {
		before := b.table.Draining()
		effects, err := b.table.Step(ev)
		if w.log != nil {
			w.note("  %s %s: %s", b.name(), word(ev), outcomeOf(effects, err))
		}
		if err != nil {
			return all, err
		}
		if r, ok := ev.(lease.Reserve); ok {
			if before != "" {
				w.violate("broker %s grants while it says: %s", b.name(), before)
			}
			w.fair(b, r)
		}
		for i, e := range w.plan.Bug.effects(b, effects) {
			w.carryOut(b, i, e)
		}
		all = append(all, effects...)
	}
	return all, nil
}

// fair looks at a grant: a tenant with another request leaves others their part.
func (w *world) fair(b *broker, r lease.Reserve) {
	if w.plan.Share == 0 {
		return
	}
	used, others := uint32(0), false
	for _, l := range b.table.Snapshot().Leases {
		if l.Tenant == r.Tenant {
			used, others = used+l.Pages, others || l.Admission != r.Admission && l.Pages > 0
		}
	}
	if free := b.table.Free(); others && used > w.plan.Share*free {
		w.violate("broker %s: %s has %d pages and %d are free, at a share of %d", b.name(), r.Tenant, used, free, w.plan.Share)
	}
}

func (w *world) writeLate(b *broker) {
	for _, t := range b.late {
		b.tags[t.Page] = t.Tag
	}
	b.late = nil
}

// report is for what has happened; a core that refuses it has found a bug of the shell's.
func (w *world) report(b *broker, ev lease.Event) {
	if _, err := w.step(b, ev); err != nil {
		w.violate("broker %s: the table refuses a report, %s: %v", b.name(), word(ev), err)
	}
}

func (w *world) carryOut(b *broker, i int, e lease.Effect) {
	switch e := e.(type) {
	case lease.WriteTags:
		if i != 0 {
			w.violate("broker %s: tags are effect %d of a step", b.name(), i)
		}
		for _, t := range e.Tags {
			w.writeTag(b, t)
		}
	case lease.Revoked:
		if h := b.handleOf(e.Attach); h != nil {
			h.revoked = append(h.revoked, e.Lease)
		}
	case lease.EndPull:
		w.endPull(b, e)
	case lease.Zero:
		if h := b.find(e.Lease); h != nil && h.dest != nil {
			e.Seals = append(slices.Clone(h.dest.seals), e.Seals...)
			r := &w.plan.reqs[h.req]
			switch {
			case r.local() && h.dest.phase < over: // who waits for its source hears of the end
				defer w.unpark(r, errs.New(errs.Unavailable, "the lease has ended"))
			case h.dest.phase == opening:
				w.cut(int(r.id))
				w.fail(r)
			}
		}
		b.forget(e.Lease)
		if len(e.Pages) > 0 {
			b.dirty = append(b.dirty, e)
		}
	case lease.Record:
		if e.Kind == lease.WasHandedOver {
			b.forget(e.Lease)
		}
	}
}

// writeTag stores a tag. A generation is given to a tenant once.
func (w *world) writeTag(b *broker, t lease.PageTag) {
	old := b.tags[t.Page]
	sealing := t.Tag.Sealed() && !old.Sealed() && t.Tag.Masked() == old.Masked()
	switch g := t.Tag.Generation(); {
	case sealing || t.Tag.Slot() == pool.Nobody:
	case g < b.fresh[t.Page]:
		w.violate("broker %s: page %d is given with generation %d, which is not above all before", b.name(), t.Page, g)
	default:
		b.fresh[t.Page] = g + 1
		for p, other := range b.tags {
			if uint32(p) != t.Page && other.Slot() != pool.Nobody && other.Generation() == g {
				w.violate("broker %s: pages %d and %d have generation %d", b.name(), p, t.Page, g)
			}
		}
	}
	b.tags[t.Page] = t.Tag
}

// endPull stops the movers of a lease and tells the other side.
func (w *world) endPull(b *broker, e lease.EndPull) {
	h := b.find(e.Lease)
	if h == nil {
		return
	}
	if h.dest != nil && !h.dest.failed {
		h.dest.failed, h.dest.failure = true, e.Kind
	}
	if p := b.parkedFor(h.req); h.src && p != nil {
		p.lose(errs.New(e.Kind, "%s", e.Reason))
	}
}

func (p *parked) lose(why error) {
	if p.failed {
		return
	}
	_, _ = p.core.Step(transfer.Lost{Err: why}) // the error is why
	p.failed, p.err = true, errs.KindOf(why)
}

// feed gives the core an occurrence and queues what it answers.
func (p *parked) feed(o transfer.Occurrence) error {
	send, err := p.core.Step(o)
	if err != nil && !p.failed {
		p.failed, p.err = true, errs.KindOf(err)
	}
	p.queue, p.sent = append(p.queue, send.Places...), p.sent || send.Sent
	return err
}

func (b *broker) handleOf(a lease.Attach) *handle {
	for i := range b.handles {
		if b.handles[i].attach == a {
			return &b.handles[i]
		}
	}
	return nil
}

func (b *broker) find(id lease.ID) *held {
	for i := range b.held {
		if b.held[i].ref.Lease == id {
			return &b.held[i]
		}
	}
	return nil
}

// destFor is the destination lease of a request.
func (b *broker) destFor(req uint8) *held {
	for i := range b.held {
		if b.held[i].req == req && b.held[i].dest != nil {
			return &b.held[i]
		}
	}
	return nil
}

func (b *broker) forget(id lease.ID) {
	b.held = slices.DeleteFunc(b.held, func(h held) bool { return h.ref.Lease == id })
}

func (b *broker) parkedFor(req uint8) *parked {
	for _, p := range b.parked {
		if p.req == req {
			return p
		}
	}
	return nil
}

// take reserves pages for a request's side, all or none. A ticket is good for one lease of a role.
func (w *world) take(b *broker, h *handle, r *request, ev lease.Reserve) (*held, []lease.PageTag, error) {
	u := use{r.id, ev.Role}
	if slices.Contains(b.spent, u) {
		return nil, nil, errs.New(errs.Invalid, "the admission has had a lease of this role")
	}
	ev.Lease, ev.Attach = w.plan.Bug.lease(b, r.id, ev.Role), h.attach
	ev.Tenant, ev.Admission = r.Tenant, lease.Admission(r.admission.Id)
	effects, err := w.step(b, ev)
	if err != nil {
		return nil, nil, err
	}
	b.spent = append(b.spent, u)
	for _, e := range effects {
		if g, ok := e.(lease.Granted); ok {
			b.held = append(b.held, held{ref: lease.Ref{Lease: ev.Lease, Attach: ev.Attach, Epoch: g.Epoch}, req: r.id, role: ev.Role})
			for _, p := range g.Pages {
				if b.mem[p.Page] != (content{}) {
					w.violate("broker %s grants page %d, which is not zero: %v", b.name(), p.Page, b.mem[p.Page])
				}
			}
			return &b.held[len(b.held)-1], g.Pages, nil
		}
	}
	return nil, nil, errs.New(errs.Internal, "nothing was granted")
}

// abandon ends a lease that its worker never heard of: the shell speaks for it.
func (w *world) abandon(b *broker, ref lease.Ref, kind errs.Kind) {
	w.report(b, lease.Revoke{Lease: ref.Lease, Kind: kind, Reason: "abandoned"})
	w.report(b, lease.Retired{Ref: ref, Reason: "the worker never had it"})
}

// clear clears the pages of the lease that has waited longest.
func (w *world) clear(b *broker) {
	z := b.dirty[0]
	b.dirty = b.dirty[1:]
	for _, s := range z.Seals {
		if got := b.mem[z.Pages[s.Index]].digest(s.Rows); got != s.Digest {
			w.violate("broker %s: page %d was written after it was sealed", b.name(), z.Pages[s.Index])
		}
	}
	for _, p := range z.Pages {
		b.mem[p] = content{}
	}
	w.report(b, lease.Zeroed{Pages: z.Pages})
}

func word(ev lease.Event) string { return fmt.Sprintf("%T", ev)[len("lease."):] }
