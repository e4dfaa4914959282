package explore

import (
	"slices"

	"leasehold.dev/kvbroker/lease"
	"leasehold.dev/kvbroker/transfer"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/pagesum"
	"leasehold.dev/protos/proof"
)

// attach gives worker k a handle of its broker. The dead handles of the same process that have no leases make way.
func (w *world) attach(k int) {
	n, b := &w.workers[k], &w.brokers[w.plan.at[k]]
	var earlier []lease.Attach
	for _, h := range b.handles {
		if h.hungUp && h.worker == k && h.process == n.process && !slices.ContainsFunc(b.held, func(l held) bool { return l.ref.Attach == h.attach }) {
			earlier = append(earlier, h.attach)
		}
	}
	b.epoch++
	n.attaches++
	a := w.plan.Bug.attach(b, k, n)
	ev := lease.Attached{Attach: a, Worker: workerName(k), PID: uint32(n.process), Epoch: b.epoch}
	if _, err := w.step(b, ev); err != nil {
		return
	}
	b.handles = append(b.handles, handle{attach: a, worker: k, process: n.process})
	for _, old := range earlier {
		w.report(b, lease.Detached{Attach: old})
		b.drop(old)
	}
	n.attached, n.handle, n.inc = true, a, b.inc
}

func (b *broker) drop(a lease.Attach) {
	b.handles = slices.DeleteFunc(b.handles, func(h handle) bool { return h.attach == a })
}

func workerName(k int) string { return [...]string{"P", "D"}[k] }

// hangUp ends a handle whose socket has ended: the process may live on.
func (w *world) hangUp(b *broker, h *handle) {
	h.hungUp = true
	a := h.attach
	for _, l := range slices.Clone(b.held) {
		if l.ref.Attach == a {
			w.report(b, lease.Revoke{Lease: l.ref.Lease, Kind: errs.Unavailable, Reason: "the attach connection ended"})
		}
	}
}

// gone is the proof of a process's end.
func (w *world) gone(b *broker, a lease.Attach) {
	w.report(b, lease.WorkerGone{Attach: a})
	b.drop(a)
}

// granted is a page table that worker k builds.
func (w *world) granted(k int, req uint8, role lease.Role, ref lease.Ref, pages []lease.PageTag) {
	n := &w.workers[k]
	n.leases = append(n.leases, wlease{req: req, role: role, ref: ref, inc: n.inc, pages: pages})
}

// reserveDecode is Decode.Generate: worker D asks for its side. heard: the answer reaches it.
func (w *world) reserveDecode(r *request, heard bool) {
	b, n, c := w.taker(), &w.workers[decode], &w.calls[r.id]
	h := b.handleOf(n.handle)
	if h == nil || h.hungUp {
		return
	}
	ev := lease.Reserve{Role: lease.Solo, Pages: r.life}
	var expect *transfer.Expectation
	if !r.solo() {
		var err error
		if expect, err = transfer.Expect(r.admission, self(int(b.id), b.inc), r.ids, 0); err != nil {
			w.violate("the receiver expects nothing of a good request: %v", err)
			return
		}
		ev = lease.Reserve{Role: lease.Destination, Pages: r.life, Moved: expect.Pages, Rows: expect.Rows, FromSource: r.local()}
	}
	l, pages, err := w.take(b, h, r, ev)
	if err != nil {
		if k := errs.KindOf(err); k != errs.Exhausted && k != errs.Unavailable { // else it may ask again
			w.fail(r)
		}
		return
	}
	c.process[decode] = n.process
	if r.solo() {
		if !heard {
			w.unheard(decode, r, l.ref)
			return
		}
		c.decode = dAdmitted
		w.granted(decode, r.id, lease.Solo, l.ref, pages)
		return
	}
	c.decode = dAsked
	l.dest = &dest{rx: transfer.NewReceiver(expect), expect: expect, peer: self(w.plan.at[prefill], b.peer)}
	for _, p := range pages {
		l.dest.pages = append(l.dest.pages, p.Page)
	}
	if !r.local() {
		w.pulls[r.id] = pull{live: true}
		w.toA(r, wire{kind: wOpen, to: b.peer})
		return
	}
	l.dest.phase = receiving
	ref, dp := l.ref, l.dest.pages
	if err := w.park(r, b.inc); err != nil {
		w.unopened(b, l, r, err)
		return
	}
	w.admit(r, ref, dp)
}

// admit is D's answer of a Reserve whose Pull is attached. The worker may not wait for it any more.
func (w *world) admit(r *request, ref lease.Ref, pages []uint32) {
	n, c := &w.workers[decode], &w.calls[r.id]
	if !n.alive || n.process != c.process[decode] || n.handle != ref.Attach {
		return // its process is gone, or hears nothing on this handle
	}
	told := make([]lease.PageTag, len(pages))
	for i, p := range pages {
		told[i].Page = p
	}
	c.decode = dAdmitted
	w.granted(decode, r.id, lease.Destination, ref, told)
}

// unheard is an answer that was lost: the worker asks what became of it, and retires what it never saw.
func (w *world) unheard(k int, r *request, ref lease.Ref) {
	w.tell(k, say{kind: sayRetire, req: r.id, ref: ref, failure: errs.Unavailable})
	w.fail(r)
}

// reservePrefill is Prefill.Run.
func (w *world) reservePrefill(r *request, heard bool) {
	b, n, c := w.sender(), &w.workers[prefill], &w.calls[r.id]
	c.prefill, c.process[prefill] = pRuns, n.process
	h, p := b.handleOf(n.handle), b.parkedFor(r.id)
	if h == nil || h.hungUp || p == nil || p.failed {
		w.fail(r)
		return
	}
	_, rows, want := p.core.Want()
	l, pages, err := w.take(b, h, r, lease.Reserve{Role: lease.Source, Pages: want, Rows: rows})
	if err != nil {
		w.refuse(r, err)
		w.fail(r)
		return
	}
	ref := l.ref
	err = p.feed(transfer.Bound{Lease: ref.Lease, Epoch: ref.Epoch, Pages: uint32(len(pages)), Rows: rows,
		PromptDigest: proof.PromptDigest(r.admission.Nonce, r.Tenant, revision, r.ids)})
	if err == nil && !r.local() {
		_, err = w.step(b, lease.PullStarted{Lease: ref.Lease})
	}
	if err != nil {
		w.abandon(b, ref, errs.KindOf(err))
		w.fail(r)
		return
	}
	p.ref, p.bound, l.src = ref, true, true
	for _, g := range pages {
		p.pages = append(p.pages, g.Page)
	}
	if !heard {
		w.unheard(prefill, r, ref)
		return
	}
	w.granted(prefill, r.id, lease.Source, ref, pages)
}

// refuse tells the waiting Pull why no lease will come.
func (w *world) refuse(r *request, err error) {
	if p := w.sender().parkedFor(r.id); p != nil && !p.bound {
		p.lose(err)
	}
}

// passes is a kernel's look at the tags of a page table's pages [from, to).
func (w *world) passes(k int, l *wlease, from, to uint32) bool {
	b := &w.brokers[w.plan.at[k]]
	if !b.up || b.inc != l.inc {
		return true // the memory of a broker that is gone stands as it was
	}
	for _, p := range l.pages[from:to] {
		if p.Tag.Slot() == 0 || b.tags[p.Page].Masked() != p.Tag.Masked() {
			return false
		}
	}
	return true
}

// writes says whether l has a page to write next.
func (w *world) writes(l *wlease) bool {
	r := &w.plan.reqs[l.req]
	switch l.role {
	case lease.Source:
		return l.next < r.moved
	case lease.Solo:
		return l.next < r.life
	}
	return l.owned && l.next == 0 && w.calls[l.req].out == succeeded // decode's one step
}

// land is a kernel's write, however long ago its check was.
func (w *world) land(k int, i int, stub bool) {
	n := &w.workers[k]
	l := &n.leases[i]
	b := &w.brokers[w.plan.at[k]]
	mapped := b.up && b.inc == l.inc
	l.flying = false
	if l.role == lease.Destination {
		w.decodeStep(k, l, b, mapped)
		return
	}
	place := l.next
	l.next++
	if mapped && !stub {
		b.mem[l.pages[place].Page] = content{by: l.req + 1, place: uint8(place)}
	}
	if stub {
		l.stub |= 1 << place
	}
	if l.role == lease.Source {
		w.sealed(k, l, place)
		return
	}
	if l.next == w.plan.reqs[l.req].life {
		w.verdictSolo(l)
	}
}

// decodeStep reads every page and appends to the last; its tokens leave only if the second look at the tags is as the first.
func (w *world) decodeStep(k int, l *wlease, b *broker, mapped bool) {
	l.next++
	if mapped {
		last := l.pages[len(l.pages)-1].Page
		c := b.mem[last]
		b.mem[last] = content{by: l.req + 1, place: uint8(len(l.pages) - 1), flip: c.flip, tail: true}
	}
	if !w.passes(k, l, 0, uint32(len(l.pages))) {
		l.fault = true
		return
	}
	if mapped {
		w.genuine(b, l.req, l.pages, "a token is computed")
	}
	w.drop(k, l.ref, say{kind: sayRetire, ok: true})
}

// sealed reports a page that is complete, with what the append kernel counted; the last one ends the lease.
func (w *world) sealed(k int, l *wlease, place uint32) {
	r := &w.plan.reqs[l.req]
	s := lease.PageSeal{Index: place, Rows: rowsAt(r.rows, place)}
	c := content{by: l.req + 1, place: uint8(place)}
	if l.stub&(1<<place) != 0 {
		c = content{}
	}
	s.Digest = c.digest(s.Rows)
	if place+1 < r.moved {
		if s.Rows == pagesum.PageTokens {
			w.tell(k, say{kind: saySeal, req: l.req, ref: l.ref, seals: []lease.PageSeal{s}})
		}
		return
	}
	all := []lease.PageSeal{s}
	w.drop(k, l.ref, say{kind: sayFinish, seals: all, rows: r.rows})
}

// drop takes a page table away, and says so: no kernel of the worker will touch the pages again.
func (w *world) drop(k int, ref lease.Ref, s say) {
	n := &w.workers[k]
	for i, l := range n.leases {
		if l.ref == ref {
			s.req, s.ref = l.req, ref
			n.leases = slices.Delete(n.leases, i, i+1)
			break
		}
	}
	w.tell(k, s)
}

func (w *world) tell(k int, s say) {
	n := &w.workers[k]
	s.process = n.process
	n.says = append(n.says, s)
}

// stopped says that the worker has reason to give the lease up.
func (w *world) stopped(k int, l *wlease) bool {
	b := &w.brokers[w.plan.at[k]]
	if l.dead || l.fault || w.calls[l.req].out == failed {
		return true
	}
	if h := b.handleOf(l.ref.Attach); b.up && h != nil {
		return slices.Contains(h.revoked, l.ref.Lease)
	}
	return false
}

// giveIn retires a lease that is lost.
func (w *world) giveIn(k, i int) {
	l := w.workers[k].leases[i]
	s := say{kind: sayRetire, failure: errs.Unavailable}
	if l.fault {
		s.failure = errs.Corrupt
	}
	if w.calls[l.req].out == open {
		w.fail(&w.plan.reqs[l.req])
	}
	w.drop(k, l.ref, s)
}

// hear is a call of the worker socket that reaches the broker, be it another incarnation.
func (w *world) hear(k int, s say) {
	b := &w.brokers[w.plan.at[k]]
	h := b.handleOf(s.ref.Attach)
	if s.kind == sayRetire {
		_, err := w.step(b, lease.Retired{Ref: s.ref, OK: s.ok, Kind: s.failure, Reason: "told so"})
		w.note("  %s hears of the end: %v", b.name(), err)
		return
	}
	if h == nil || h.hungUp {
		w.unsaid(k, s)
		return
	}
	ev := lease.Event(lease.Seal{Ref: s.ref, Seals: s.seals})
	if s.kind == sayFinish {
		ev = lease.Finish{Ref: s.ref, Seals: s.seals, Rows: s.rows}
	}
	_, err := w.step(b, ev)
	p := b.parkedFor(s.req)
	if l := b.find(s.ref.Lease); err == nil && (l == nil || !l.src || p == nil) {
		if s.kind == saySeal {
			return
		}
		err = errs.New(errs.Internal, "the lease has no Pull")
	}
	switch {
	case err != nil:
	case s.kind == saySeal:
		err = p.feed(transfer.Sealed{Seals: s.seals})
	case p.root != nil: // a repeat hears what the first one heard
	default:
		if err = p.feed(transfer.Finished{Seals: s.seals, Rows: s.rows}); err == nil {
			p.root = p.core.Root()
		}
	}
	if k := errs.KindOf(err); err != nil && (k == errs.Invalid || k == errs.Corrupt) { // distrust
		w.report(b, lease.Revoke{Lease: s.ref.Lease, Kind: errs.Corrupt, Reason: err.Error()})
	}
	if err != nil {
		w.unsaid(k, s)
		return
	}
	if s.kind == sayFinish {
		w.verdictPrefill(s, p)
	}
}

// unsaid is a Seal or Finish that failed: the worker gives the request up.
func (w *world) unsaid(k int, s say) {
	if n := &w.workers[k]; n.alive && n.process == s.process {
		if s.kind == sayFinish {
			w.tell(k, say{kind: sayRetire, req: s.req, ref: s.ref, failure: errs.Unavailable})
		}
		w.fail(&w.plan.reqs[s.req])
	}
}

// owned is the answer of AwaitOwned.
func (w *world) owned(k, i int) {
	l := &w.workers[k].leases[i]
	h := w.taker().find(l.ref.Lease)
	if h == nil || h.dest.owned == nil {
		w.fail(&w.plan.reqs[l.req])
		return
	}
	l.owned, l.pages = true, h.dest.owned
	w.verdictDecode(l, h.dest)
}

// canOwn says that AwaitOwned returns.
func (w *world) canOwn(l *wlease) bool {
	b := w.taker()
	if l.role != lease.Destination || l.owned || l.dead || !b.up || b.inc != l.inc || w.calls[l.req].out != open {
		return false
	}
	h := b.find(l.ref.Lease)
	return h == nil || h.dest.phase >= settling
}

// kernel starts one: it looks at the tags of all that it will touch.
func (w *world) kernel(k int, l *wlease) {
	from, to := l.next, l.next+1
	if l.role == lease.Destination {
		from, to = 0, uint32(len(l.pages))
	}
	l.flying = w.passes(k, l, from, to)
	l.fault = !l.flying
}

// breakSocket ends a worker's attach connection at its side: nobody will answer for its leases any more.
func (w *world) breakSocket(k int) {
	n := &w.workers[k]
	n.attached = false
	for i := range n.leases {
		n.leases[i].dead = true
	}
}

// unheardSay is a call that never arrived. A proof is said again while its handle lives; Seal and Finish have failed.
func (w *world) unheardSay(k int, s say) {
	n := &w.workers[k]
	switch {
	case !n.alive || n.process != s.process:
	case s.kind == sayRetire && n.attached && n.handle == s.ref.Attach:
		n.says = append(n.says, s)
	case s.kind != sayRetire:
		w.unsaid(k, s)
	}
}

// stopTake ends a receiving mover that was told to, or whose stream is broken; or a Reserve whose Pull did not come about.
func (w *world) stopTake(r *request) {
	b := w.taker()
	h := b.destFor(r.id)
	err := errs.New(errs.Unavailable, "the stream is broken")
	if h.dest.failed {
		err = errs.New(h.dest.failure, "the lease has ended")
	}
	if h.dest.phase == opening {
		w.unopened(b, h, r, err)
		return
	}
	w.endReceive(b, h, r, err)
}
