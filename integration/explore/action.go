package explore

import (
	"fmt"

	"leasehold.dev/kvbroker/lease"
)

// action is one thing that can happen next.
type action struct {
	kind kind
	a, b uint8 // which: request, worker or broker, and a place in one of its lists
}

type kind uint8

const (
	aAsk      kind = iota // request a: the router asks decode, which reserves
	aRun                  // request a: the router asks prefill, which reserves
	aToA                  // request a's Pull: the first message reaches the sender
	aToB                  // the first message reaches the receiver
	aSend                 // the sender's mover goes on
	aStopTake             // the receiver's mover sees why it should stop
	aHandOver             // a local Pull is complete
	aVerify               // what has arrived is checked
	aSettle               // it is looked at once more
	aKernel               // worker a, page table b: a kernel passes its tag check
	aLand                 // it writes
	aHear                 // worker a's first call reaches its broker
	aOwned                // worker a, page table b: AwaitOwned returns
	aGiveIn               // worker a, page table b: the worker stops and retires
	aCompare              // request a: the router compares verdicts
	aClear                // broker a clears a lease's pages
	aGone                 // broker a, handle b: the process is seen to be gone
	aHangUp               // broker a, handle b: the socket is seen to be broken
	aAttach               // worker a attaches
	aSpawn                // worker a starts again
	aBoot                 // broker a starts again

	firstUpset // from here on each takes one of the history's upsets
	aAskUnheard
	aRunUnheard
	aExpire  // broker a, lease b: its timer
	aCancel  // request a: the client goes away
	aCut     // request a's Pull breaks
	aLoseA   // its first message to the sender is lost
	aLoseB   // to the receiver
	aDoubleB // is there twice
	aSwapB   // is overtaken
	aFlipB   // has a bit flipped
	aDoubleSay
	aSwapSay
	aLoseSay
	aStub  // worker a, page table b: the page is reported and was not written
	aBreak // worker a: its attach socket breaks
	aKill  // worker a: kill -9
	aCrash // broker a: kill -9

	kinds = int(aCrash) + 1

	// No search takes these: they are the last resorts of settle.
	aDeadlines = kind(kinds)     // every deadline passes
	aEnds      = kind(kinds + 1) // every worker's process ends
)

// actions lists what can happen next, in an order that depends on nothing else.
func (w *world) actions(out []action) []action {
	add := func(on bool, k kind, a, b int) {
		if on && (k < firstUpset || w.upsets > 0) {
			out = append(out, action{k, uint8(a), uint8(b)})
		}
	}
	for i := range w.plan.reqs {
		w.requestActions(add, &w.plan.reqs[i])
	}
	for k := range w.workers {
		w.workerActions(add, k)
	}
	for i := range w.brokers {
		b := &w.brokers[i]
		add(b.up && len(b.dirty) > 0, aClear, i, 0)
		for h := range b.handles {
			n := &w.workers[b.handles[h].worker]
			add(!n.alive || n.process != b.handles[h].process, aGone, i, h)
			add(!b.handles[h].hungUp && (!n.alive || !n.attached || n.handle != b.handles[h].attach), aHangUp, i, h)
		}
		for l := range b.held {
			add(true, aExpire, i, l)
		}
		add(!b.up, aBoot, i, 0)
		add(b.up && w.serves(i), aCrash, i, 0)
	}
	return out
}

// serves says whether anybody is at broker i.
func (w *world) serves(i int) bool { return w.plan.at[prefill] == i || w.plan.at[decode] == i }

func (w *world) requestActions(add func(bool, kind, int, int), r *request) {
	i, c, p := int(r.id), &w.calls[r.id], &w.pulls[r.id]
	d, s := &w.workers[decode], &w.workers[prefill]
	canAsk := c.out == open && c.decode == dNone && d.alive && d.attached && w.taker().up
	canRun := c.out == open && c.decode >= dAdmitted && c.prefill == pNone && !r.solo() && s.alive && s.attached && w.sender().up
	add(canAsk, aAsk, i, 0)
	add(canRun, aRun, i, 0)
	add(len(p.toA) > 0 && w.sender().up, aToA, i, 0)
	add(len(p.toB) > 0 && w.taker().up, aToB, i, 0)
	add(w.canSend(r), aSend, i, 0)
	add(w.canStopTake(r), aStopTake, i, 0)
	add(w.canHandOver(r), aHandOver, i, 0)
	add(w.inPhase(r, verifying), aVerify, i, 0)
	add(w.canSettle(r), aSettle, i, 0)
	add(w.canCompare(r), aCompare, i, 0)

	add(canAsk && r.solo(), aAskUnheard, i, 0)
	add(canRun, aRunUnheard, i, 0)
	add(c.out == open && c.decode != dNone, aCancel, i, 0)
	add(p.live && !p.cut, aCut, i, 0)
	add(len(p.toA) > 0, aLoseA, i, 0)
	add(len(p.toB) > 0, aLoseB, i, 0)
	add(len(p.toB) > 0, aDoubleB, i, 0)
	add(len(p.toB) > 1, aSwapB, i, 0)
	add(len(p.toB) > 0 && p.toB[0].kind == wPart, aFlipB, i, 0)
}

func (w *world) inPhase(r *request, ph phase) bool {
	b := w.taker()
	if !b.up || r.solo() {
		return false
	}
	h := b.destFor(r.id)
	return h != nil && h.dest.phase == ph
}

func (w *world) canStopTake(r *request) bool {
	if w.inPhase(r, opening) {
		return w.pulls[r.id].cut || w.taker().destFor(r.id).dest.failed || w.calls[r.id].out == failed || w.askerGone(r)
	}
	return !r.local() && w.inPhase(r, receiving) && (w.pulls[r.id].cut || w.taker().destFor(r.id).dest.failed)
}

// askerGone says that nobody waits for the answer of the Reserve any more.
func (w *world) askerGone(r *request) bool {
	d := &w.workers[decode]
	return !d.alive || d.process != w.calls[r.id].process[decode]
}

func (w *world) canHandOver(r *request) bool {
	if !r.local() || !w.inPhase(r, receiving) {
		return false
	}
	p := w.sender().parkedFor(r.id)
	return p != nil && (p.sent || p.failed || w.taker().destFor(r.id).dest.failed)
}

func (w *world) workerActions(add func(bool, kind, int, int), k int) {
	n := &w.workers[k]
	up := w.brokers[w.plan.at[k]].up
	for i := range n.leases {
		l := &n.leases[i]
		stopped := w.stopped(k, l)
		ready := n.alive && !l.flying && w.writes(l)
		add(ready && !stopped, aKernel, k, i)
		add(n.alive && l.flying, aLand, k, i)
		add(n.alive && w.canOwn(l), aOwned, k, i)
		add(n.alive && stopped && !l.flying, aGiveIn, k, i)
		add(ready && !stopped && l.role == lease.Source, aStub, k, i)
	}
	add(len(n.says) > 0 && up, aHear, k, 0)
	add(n.alive && !n.attached && up, aAttach, k, 0)
	add(!n.alive, aSpawn, k, 0)

	add(len(n.says) > 0, aDoubleSay, k, 0)
	add(len(n.says) > 1, aSwapSay, k, 0)
	add(len(n.says) > 0, aLoseSay, k, 0)
	add(n.alive && n.attached, aBreak, k, 0)
	add(n.alive, aKill, k, 0)
}

// do carries one action out. What must not be is in w.bad then.
func (w *world) do(a action) {
	if a.kind > firstUpset && a.kind < aDeadlines {
		w.upsets--
	}
	switch {
	case a.kind == aDeadlines:
		w.deadlines()
	case a.kind == aEnds:
		for k := range w.workers {
			w.kill(k)
		}
	case a.kind <= aSettle || a.kind == aCompare || a.kind > firstUpset && a.kind <= aRunUnheard || a.kind >= aCancel && a.kind <= aFlipB:
		w.doRequest(a.kind, &w.plan.reqs[a.a])
	case a.kind == aClear || a.kind == aGone || a.kind == aHangUp || a.kind == aBoot || a.kind == aExpire || a.kind == aCrash:
		w.doBroker(a)
	default:
		w.doWorker(a)
	}
}

func (w *world) doRequest(k kind, r *request) {
	p := &w.pulls[r.id]
	switch k {
	case aAsk, aAskUnheard:
		w.reserveDecode(r, k == aAsk)
	case aRun, aRunUnheard:
		w.reservePrefill(r, k == aRun)
	case aToA:
		m := p.toA[0]
		p.toA = p.toA[1:]
		w.deliverA(r, m)
	case aToB:
		m := p.toB[0]
		p.toB = p.toB[1:]
		w.deliverB(r, m)
	case aSend:
		w.send(r)
	case aStopTake:
		w.stopTake(r)
	case aHandOver:
		w.handOver(r)
	case aVerify:
		w.verify(r)
	case aSettle:
		w.lookAgain(r)
	case aCompare:
		w.compare(r)
	case aCancel:
		w.fail(r)
	case aCut:
		w.cut(int(r.id))
	case aLoseA:
		p.toA = p.toA[1:]
	case aLoseB:
		p.toB = p.toB[1:]
	case aDoubleB:
		p.toB = append([]wire{p.toB[0]}, p.toB...)
	case aSwapB:
		p.toB[0], p.toB[1] = p.toB[1], p.toB[0]
	case aFlipB:
		p.toB[0].content.flip = true
	}
}

func (w *world) doBroker(a action) {
	b := &w.brokers[a.a]
	switch a.kind {
	case aClear:
		w.clear(b)
	case aGone:
		if h := &b.handles[a.b]; !h.hungUp {
			w.hangUp(b, h)
		}
		w.gone(b, b.handles[a.b].attach)
	case aHangUp:
		w.hangUp(b, &b.handles[a.b])
	case aExpire:
		w.report(b, lease.Expire{Lease: b.held[a.b].ref.Lease})
	case aCrash:
		w.crash(int(a.a))
	case aBoot:
		if err := w.boot(int(a.a)); err != nil {
			w.violate("%v", err)
		}
	}
}

func (w *world) doWorker(a action) {
	k, i := int(a.a), int(a.b)
	n := &w.workers[k]
	switch a.kind {
	case aKernel:
		w.kernel(k, &n.leases[i])
	case aLand, aStub:
		w.land(k, i, a.kind == aStub)
	case aHear:
		s := n.says[0]
		n.says = n.says[1:]
		w.hear(k, s)
	case aOwned:
		w.owned(k, i)
	case aGiveIn:
		w.giveIn(k, i)
	case aAttach:
		w.attach(k)
	case aSpawn:
		n.alive = true
	case aDoubleSay:
		n.says = append([]say{n.says[0]}, n.says...)
	case aSwapSay:
		n.says[0], n.says[1] = n.says[1], n.says[0]
	case aLoseSay:
		s := n.says[0]
		n.says = n.says[1:]
		w.unheardSay(k, s)
	case aBreak:
		w.breakSocket(k)
	case aKill:
		w.kill(k)
	}
}

// kill ends a process: its kernels are gone with it.
func (w *world) kill(k int) {
	n := &w.workers[k]
	w.breakSocket(k)
	n.alive, n.leases = false, nil
	n.process++
}

// describe is an action in words, before it is done.
func (w *world) describe(a action) string {
	req := func() string {
		r := &w.plan.reqs[a.a]
		return fmt.Sprintf("%s's request %d", r.Tenant, r.id)
	}
	table := func() string {
		l := &w.workers[a.a].leases[a.b]
		return fmt.Sprintf("%s, its %v lease of %s's request %d", workerName(int(a.a)), l.role, w.plan.reqs[l.req].Tenant, l.req)
	}
	said := func() string {
		s := w.workers[a.a].says[0]
		return fmt.Sprintf("%s's %s for request %d", workerName(int(a.a)), [...]string{"Seal", "Finish", "Retire"}[s.kind], s.req)
	}
	name := func() string { return "broker " + string(rune('A'+a.a)) }
	first := func(q []wire) string {
		return [...]string{"Open", "Received", "Attached", "page", "Sent", "Completion", "end"}[q[0].kind] + " of " + req()
	}
	switch a.kind {
	case aAsk:
		return "D reserves for " + req()
	case aRun:
		return "P reserves for " + req()
	case aAskUnheard:
		return "D reserves for " + req() + "; the answer is lost"
	case aRunUnheard:
		return "P reserves for " + req() + "; the answer is lost"
	case aToA:
		return "the sender gets: " + first(w.pulls[a.a].toA)
	case aToB:
		return "the receiver gets: " + first(w.pulls[a.a].toB)
	case aSend:
		return "the sender's mover goes on, " + req()
	case aStopTake:
		return "the receiver's mover stops, " + req()
	case aHandOver:
		return "the pages are handed over, " + req()
	case aVerify:
		return "what has arrived is verified, " + req()
	case aSettle:
		return "what is owned is looked at once more, " + req()
	case aCompare:
		return "the router compares verdicts, " + req()
	case aKernel:
		return "a kernel passes its tag check: " + table()
	case aLand:
		return "the kernel writes: " + table()
	case aStub:
		return "UPSET a page is reported that was never written: " + table()
	case aOwned:
		return "D hears from AwaitOwned: " + table()
	case aGiveIn:
		return "the worker stops and retires: " + table()
	case aHear:
		return "its broker hears " + said()
	case aClear:
		return name() + " clears pages"
	case aGone:
		return name() + " sees that a process is gone"
	case aHangUp:
		return name() + " sees that an attach socket is broken"
	case aAttach:
		return workerName(int(a.a)) + " attaches"
	case aSpawn:
		return workerName(int(a.a)) + " starts again"
	case aBoot:
		return name() + " starts again"
	case aExpire:
		h := w.brokers[a.a].held[a.b]
		return fmt.Sprintf("UPSET %s: the timer of the %v lease of request %d", name(), h.role, h.req)
	case aCancel:
		return "UPSET the client goes away: " + req()
	case aCut:
		return "UPSET the Pull breaks: " + req()
	case aLoseA:
		return "UPSET lost on the way to the sender: " + first(w.pulls[a.a].toA)
	case aLoseB:
		return "UPSET lost on the way to the receiver: " + first(w.pulls[a.a].toB)
	case aDoubleB:
		return "UPSET twice on the way to the receiver: " + first(w.pulls[a.a].toB)
	case aSwapB:
		return "UPSET overtaken on the way to the receiver: " + first(w.pulls[a.a].toB)
	case aFlipB:
		return "UPSET a bit is flipped on the way to the receiver: " + first(w.pulls[a.a].toB)
	case aDoubleSay:
		return "UPSET twice on the way: " + said()
	case aSwapSay:
		return "UPSET overtaken on the way: " + said()
	case aLoseSay:
		return "UPSET lost on the way: " + said()
	case aBreak:
		return "UPSET the attach socket breaks: " + workerName(int(a.a))
	case aKill:
		return "UPSET killed: " + workerName(int(a.a))
	case aCrash:
		return "UPSET killed: " + name()
	case aDeadlines:
		return "LAST every deadline passes"
	case aEnds:
		return "LAST every worker's process ends"
	}
	return fmt.Sprintf("action %v", a)
}
