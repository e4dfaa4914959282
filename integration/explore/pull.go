package explore

import (
	"google.golang.org/protobuf/proto"

	"leasehold.dev/kvbroker/lease"
	"leasehold.dev/kvbroker/transfer"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
)

func (w *world) sender() *broker { return &w.brokers[w.plan.at[prefill]] }

func (w *world) taker() *broker { return &w.brokers[w.plan.at[decode]] }

func (w *world) pullOpen(r *request, to uint8) *brokerv1.PullOpen {
	d := w.taker()
	return &brokerv1.PullOpen{Secret: r.secret, FromInstance: instance(int(d.id), d.inc), ToInstance: instance(w.plan.at[prefill], to),
		Rows: r.rows, Pages: r.moved}
}

// park makes the Pull of an admission known at the sending side.
func (w *world) park(r *request, to uint8) error {
	b := w.sender()
	core, err := transfer.NewSource(self(int(b.id), b.inc), r.admission, w.pullOpen(r, to))
	if err != nil {
		return err
	}
	if why := b.table.Draining(); why != "" {
		return errs.New(errs.Unavailable, "nothing is granted here: %s", why)
	}
	if b.parkedFor(r.id) != nil {
		return errs.New(errs.Invalid, "the admission has a Pull")
	}
	b.parked = append(b.parked, &parked{req: r.id, core: core})
	return nil
}

// unpark ends the Pull at the sending side; nil: the receiver has its Completion.
func (w *world) unpark(r *request, err error) {
	b := w.sender()
	p := b.parkedFor(r.id)
	if p == nil {
		return
	}
	for i := range b.parked {
		if b.parked[i] == p {
			b.parked = append(b.parked[:i:i], b.parked[i+1:]...)
			break
		}
	}
	switch {
	case !p.bound:
	case !r.local():
		w.report(b, lease.PullEnded{Lease: p.ref.Lease, OK: err == nil})
	case err != nil:
		w.report(b, lease.Revoke{Lease: p.ref.Lease, Kind: errs.KindOf(err), Reason: "the receiver failed"})
	}
}

func (w *world) toB(r *request, m wire) {
	if p := &w.pulls[r.id]; !p.cut {
		p.toB = append(p.toB, m)
	}
}

func (w *world) toA(r *request, m wire) {
	if p := &w.pulls[r.id]; !p.cut {
		p.toA = append(p.toA, m)
	}
}

// deliverA is a message that reaches the sending broker.
func (w *world) deliverA(r *request, m wire) {
	b := w.sender()
	switch p := b.parkedFor(r.id); m.kind {
	case wOpen:
		if err := w.park(r, m.to); err != nil {
			w.note("  %s refuses the Pull: %v", b.name(), err)
			w.toB(r, wire{kind: wEnd, bad: true, err: errs.KindOf(err)})
			return
		}
		w.toB(r, wire{kind: wAttached})
	case wReceived:
		if p == nil || !p.said {
			return // of no stream that is here
		}
		c, err := w.complete(p, m.pages)
		if err != nil {
			w.endSend(r, err)
			return
		}
		w.toB(r, wire{kind: wCompletion, completion: c})
		p.looks = true
	}
}

// look is the sender's second one, at its pages at rest, and the end of the stream.
func (w *world) look(r *request, b *broker, p *parked) {
	for i, want := range p.core.Sealed() {
		if got := b.mem[p.pages[i]].digest(p.core.RowsOf(uint32(i))); string(got[:]) != string(want) {
			w.endSend(r, errs.New(errs.Corrupt, "page %d changed after it was sealed", i))
			return
		}
	}
	w.toB(r, wire{kind: wEnd})
	w.unpark(r, nil)
}

func (w *world) endSend(r *request, err error) {
	w.note("  %s ends the Pull: %v", w.sender().name(), err)
	w.toB(r, wire{kind: wEnd, bad: true, err: errs.KindOf(err)})
	w.unpark(r, err)
}

// complete makes the Completion, if the lease was valid throughout.
func (w *world) complete(p *parked, pages uint32) (*brokerv1.Completion, error) {
	if p.failed {
		return nil, errs.New(p.err, "the source lease was lost")
	}
	send, err := p.core.Step(transfer.Received{Pages: pages, Bytes: uint64(pages) * pageBytes})
	if err != nil {
		p.failed, p.err = true, errs.KindOf(err)
		return nil, err
	}
	return send.Completion, nil
}

// send is the next thing that the sending broker's mover does by itself.
func (w *world) send(r *request) {
	b := w.sender()
	p := b.parkedFor(r.id)
	switch {
	case p.looks:
		w.look(r, b, p)
	case w.pulls[r.id].cut:
		w.endSend(r, errs.New(errs.Unavailable, "the receiver is gone"))
	case p.failed:
		w.endSend(r, errs.New(p.err, "the source lease was lost"))
	case len(p.queue) > 0:
		place := p.queue[0]
		p.queue = p.queue[1:]
		p.count++
		w.toB(r, wire{kind: wPart, place: place, content: b.mem[p.pages[place]]})
	default:
		p.said = true
		w.toB(r, wire{kind: wSent, pages: p.count})
	}
}

func (w *world) canSend(r *request) bool {
	b := w.sender()
	if !b.up || r.solo() || r.local() {
		return false
	}
	p := b.parkedFor(r.id)
	return p != nil && (p.looks || w.pulls[r.id].cut || p.failed || len(p.queue) > 0 || p.sent && !p.said)
}

// deliverB is a message that reaches the receiving broker.
func (w *world) deliverB(r *request, m wire) {
	b := w.taker()
	h := b.destFor(r.id)
	if h == nil || h.dest == nil {
		return
	}
	d := h.dest
	if d.phase == opening {
		w.opened(b, h, r, m)
		return
	}
	if d.phase == over {
		return
	}
	var a transfer.Arrival
	switch m.kind {
	case wPart:
		a = transfer.Part{Place: m.place, Length: pageBytes}
	case wSent:
		a = transfer.Sent{Pages: m.pages}
	case wCompletion:
		a = transfer.Completed{Completion: m.completion}
	case wEnd:
		a = transfer.Ended{}
		if m.bad {
			a = transfer.Ended{Err: errs.New(m.err, "the sender failed")}
		}
	default:
		if d.phase != receiving {
			d.ended, d.endBad = true, true
			return
		}
		w.endReceive(b, h, r, errs.New(errs.Corrupt, "out of place"))
		return
	}
	progress, err := d.rx.Step(a)
	if d.phase != receiving { // no page may come any more
		d.ended = d.ended || err != nil || progress.Done
		d.endBad = d.endBad || err != nil
		return
	}
	if err == nil && m.kind == wPart {
		b.mem[d.pages[m.place]] = m.content
		f := w.plan.Bug.found(m.content, d.expect.RowsOf(m.place))
		d.found = append(d.found[:len(d.found):len(d.found)], f)
	}
	if err == nil && progress.Landed {
		_, err = w.step(b, lease.Arrived{Lease: h.ref.Lease, Place: progress.Place})
	}
	switch {
	case err != nil:
		w.endReceive(b, h, r, err)
	case progress.Received:
		w.toA(r, wire{kind: wReceived, pages: d.rx.Pages()})
	case progress.Completed:
		d.completion = d.rx.Completion()
		d.peer.Epoch = d.completion.GetEpoch()
		w.report(b, lease.PullEnded{Lease: h.ref.Lease, OK: true})
		w.rest(b, b.destFor(r.id), r)
	}
}

// opened takes the answer to an open: the Pull is attached, or refused. The worker's Reserve returns.
func (w *world) opened(b *broker, h *held, r *request, m wire) {
	err := errs.New(m.err, "the Pull was refused")
	if m.kind == wAttached {
		_, err = w.step(b, lease.PullStarted{Lease: h.ref.Lease})
	} else if !m.bad {
		err = errs.New(errs.Corrupt, "the first answer is not Attached")
	}
	if err != nil {
		if m.kind == wEnd && m.err == errs.Stale {
			b.peer = w.sender().inc // shakes hands again
		}
		w.unopened(b, h, r, err)
		return
	}
	h.dest.phase = receiving
	w.admit(r, h.ref, h.dest.pages)
}

// unopened fails a Reserve whose Pull did not come about.
func (w *world) unopened(b *broker, h *held, r *request, err error) {
	h.dest.phase = over
	ref := h.ref
	w.note("  %s: no Pull: %v", b.name(), err)
	w.closeTaker(r)
	w.abandon(b, ref, errs.KindOf(err))
	w.fail(r)
}

// closeTaker ends the stream from the receiving side: before its Completion the other side hears of a cancel.
func (w *world) closeTaker(r *request) {
	w.cut(int(r.id))
}

// endReceive is the receiving mover's end without success: from here on it does not write.
func (w *world) endReceive(b *broker, h *held, r *request, err error) {
	h.dest.phase = over
	id, local := h.ref.Lease, r.local()
	w.note("  %s gives the transfer up: %v", b.name(), err)
	w.closeTaker(r)
	w.report(b, lease.TransferFailed{Lease: id, Kind: errs.KindOf(err), Reason: err.Error()})
	if local {
		w.unpark(r, err)
	} else {
		w.report(b, lease.PullEnded{Lease: id})
	}
}

// giveUp ends a destination whose pages have arrived but do not pass.
func (w *world) giveUp(b *broker, h *held, r *request, err error) {
	h.dest.phase = over
	w.note("  %s gives the transfer up: %v", b.name(), err)
	w.report(b, lease.TransferFailed{Lease: h.ref.Lease, Kind: errs.KindOf(err), Reason: err.Error()})
	if r.local() {
		w.unpark(r, err)
	}
}

// rest begins the check of what has arrived.
func (w *world) rest(b *broker, h *held, r *request) {
	if h == nil {
		return // it ended with its last proof
	}
	if r.local() {
		p := b.parkedFor(r.id)
		if _, err := w.step(b, lease.Handover{From: p.ref.Lease, To: h.ref.Lease}); err != nil {
			w.giveUp(b, h, r, err)
			return
		}
		h = b.destFor(r.id) // the source's entry is gone
	}
	if _, err := w.step(b, lease.Verify{Lease: h.ref.Lease}); err != nil {
		w.giveUp(b, h, r, err)
		return
	}
	h.dest.phase = verifying
}

// handOver is the end of a local Pull: the source is finished, nothing has moved.
func (w *world) handOver(r *request) {
	b := w.taker()
	h, p := b.destFor(r.id), b.parkedFor(r.id)
	if h.dest.failed || p.failed {
		err := errs.New(p.err, "the source lease was lost")
		if h.dest.failed {
			err = errs.New(h.dest.failure, "the lease has ended")
		}
		w.endReceive(b, h, r, err)
		return
	}
	c, err := w.complete(p, uint32(len(p.queue)))
	if err != nil {
		w.endReceive(b, h, r, err)
		return
	}
	h.dest.completion = c
	h.dest.peer = self(int(b.id), b.inc)
	h.dest.peer.Epoch = p.ref.Epoch
	w.rest(b, h, r)
}

// verify compares what the pages held when they arrived, and makes them the worker's. Those of a handover are digested now.
func (w *world) verify(r *request) {
	b := w.taker()
	h := b.destFor(r.id)
	d := h.dest
	pages := b.table.Pages(h.ref.Lease)
	if d.failed || uint32(len(pages)) < d.expect.Pages {
		w.giveUp(b, h, r, errs.New(errs.Unavailable, "the lease has ended"))
		return
	}
	var found []transfer.Found
	d.rows = 0
	for i, p := range pages[:d.expect.Pages] {
		f := w.plan.Bug.found(b.mem[p.Page], d.expect.RowsOf(uint32(i)))
		if !r.local() {
			f = d.found[i]
		}
		found, d.rows = append(found, f), d.rows+f.Nonzero
	}
	if err := transfer.Verify(d.expect, d.peer, r.secret, d.completion, found); err != nil {
		w.giveUp(b, h, r, err)
		return
	}
	w.calls[r.id].verified = true
	effects, err := w.step(b, lease.Verified{Lease: h.ref.Lease})
	if err != nil {
		w.giveUp(b, h, r, err)
		return
	}
	for i, f := range found {
		if n := d.expect.RowsOf(uint32(i)); n == 64 && !r.local() {
			d.seals = append(d.seals[:len(d.seals):len(d.seals)], lease.PageSeal{Index: uint32(i), Rows: n, Digest: f.Digest})
		}
	}
	for _, e := range effects {
		if g, ok := e.(lease.Granted); ok {
			d.owned = g.Pages
		}
	}
	d.phase = settling
	if r.local() {
		d.phase, d.settled = over, true
	}
	c := proto.Clone(d.completion).(*brokerv1.Completion)
	c.Mac = nil
	d.completion = c
	if r.local() {
		w.unpark(r, nil)
	}
}

// lookAgain is the second look, while the first step may run: the pages at rest are what arrived, and the sender says so of its own.
func (w *world) lookAgain(r *request) {
	b := w.taker()
	h := b.destFor(r.id)
	d := h.dest
	d.phase = over
	err := w.unchanged(b, h)
	if err == nil && (d.endBad || !d.ended) {
		err = errs.New(errs.Unavailable, "the sender did not end well")
	}
	if err == nil {
		d.settled = true
		return
	}
	w.note("  %s takes the lease back: %v", b.name(), err)
	w.closeTaker(r)
	w.report(b, lease.Revoke{Lease: h.ref.Lease, Kind: errs.KindOf(err), Reason: err.Error()})
}

func (w *world) unchanged(b *broker, h *held) error {
	pages := b.table.Pages(h.ref.Lease)
	if uint32(len(pages)) < h.dest.expect.Pages {
		return errs.New(errs.Unavailable, "the lease has ended")
	}
	for i, p := range pages[:h.dest.expect.Pages] {
		if f := w.plan.Bug.found(b.mem[p.Page], h.dest.expect.RowsOf(uint32(i))); f != h.dest.found[i] {
			return errs.New(errs.Corrupt, "page %d changed after it arrived", i)
		}
	}
	return nil
}

func (w *world) canSettle(r *request) bool {
	if r.local() || !w.inPhase(r, settling) {
		return false
	}
	p := &w.pulls[r.id]
	return w.taker().destFor(r.id).dest.ended || p.cut && len(p.toB) == 0
}
