package explore

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"leasehold.dev/kvbroker/lease"
)

// fingerprint of all that decides what comes next. Pages go by the order in which they come up, tags by what they open.
type fingerprint [16]byte

func (w *world) fingerprint(buf []byte) (fingerprint, []byte) {
	b := buf[:0]
	b = append(b, byte(w.upsets))
	for i := range w.calls {
		b = w.calls[i].append(b)
	}
	for i := range w.pulls {
		p := &w.pulls[i]
		b = append(b, bit(p.live)|bit(p.cut)<<1, byte(len(p.toA)), byte(len(p.toB)))
		for _, q := range [][]wire{p.toA, p.toB} {
			for _, m := range q {
				b = append(b, byte(m.kind), m.to, byte(m.place), m.content.by, m.content.place, bit(m.content.flip)|bit(m.content.tail)<<1,
					byte(m.pages), byte(m.err), bit(m.bad))
				if m.completion != nil {
					b = append(b, m.completion.Mac...)
				}
			}
		}
	}
	for i := range w.brokers {
		b = w.appendBroker(b, i)
	}
	sum := sha256.Sum256(b)
	return fingerprint(sum[:16]), b
}

func bit(on bool) byte {
	if on {
		return 1
	}
	return 0
}

func (c *call) append(b []byte) []byte {
	b = append(b, byte(c.decode), byte(c.prefill), byte(c.out), c.process[0], c.process[1], bit(c.verified))
	if c.dv != nil {
		b = append(append(append(b, c.dv.LeaseHash...), c.dv.SourceLeaseHash...), c.dv.SourceInstance...)
		b = append(append(b, c.dv.Root...), byte(c.dv.SourceEpoch), byte(c.dv.Rows), byte(c.dv.Pages))
	}
	if c.pv != nil {
		b = append(append(append(b, c.pv.LeaseHash...), c.pv.Instance...), c.pv.Root...)
		b = append(b, byte(c.pv.Epoch))
	}
	return b
}

// namer names pages in the order in which they come up.
type namer struct {
	name [maxPages]byte // 0: not yet
	next byte
}

func (n *namer) of(p uint32) byte {
	if n.name[p] == 0 {
		n.next++
		n.name[p] = n.next
	}
	return n.name[p]
}

// appendBroker appends a broker with the workers that are at it, since their page tables name its pages.
func (w *world) appendBroker(b []byte, i int) []byte {
	k := &w.brokers[i]
	b = append(b, k.inc, bit(k.up), k.peer)
	n := &namer{}
	if k.up {
		b = append(b, byte(k.epoch))
		b = k.table.AppendState(b, n.of)
		b = k.appendShell(b, n)
	}
	for j := range w.workers {
		if w.plan.at[j] == i {
			b = w.appendWorker(b, j, k, n)
		}
	}
	if !k.up {
		return b
	}
	for p := range w.plan.Pages[i] {
		n.of(p)
	}
	var mem [maxPages]content
	for p := range w.plan.Pages[i] {
		mem[n.name[p]-1] = k.mem[p]
	}
	for _, c := range mem {
		b = append(b, c.by, c.place, bit(c.flip)|bit(c.tail)<<1)
	}
	for _, t := range k.late {
		b = append(b, n.of(t.Page), byte(t.Tag.Slot()))
	}
	return b
}

func (k *broker) appendShell(b []byte, n *namer) []byte {
	for _, z := range k.dirty {
		b = append(append(b, 'z', byte(len(z.Pages))), z.Lease[:]...)
		for _, p := range z.Pages {
			b = append(b, n.of(p))
		}
	}
	for _, h := range k.handles {
		b = append(append(b, 'h', byte(h.worker), h.process, bit(h.hungUp)), h.attach[:]...)
		for _, id := range h.revoked {
			b = append(b, id[:]...)
		}
	}
	for _, h := range k.held {
		b = append(append(b, 'l', h.req, byte(h.role), bit(h.src)), h.ref.Lease[:]...)
		if d := h.dest; d != nil {
			s := d.rx.State()
			b = append(b, byte(d.phase), byte(d.failure), bit(d.failed), bit(d.owned != nil), byte(s.Place), byte(s.Offset>>8), byte(d.rows),
				bit(s.Sent)|bit(s.Completed)<<1|bit(s.Done)<<2|bit(s.Failed)<<3|bit(d.ended)<<4|bit(d.endBad)<<5|bit(d.settled)<<6)
			for _, f := range d.found {
				b = append(append(b, byte(f.Nonzero)), f.Digest[:4]...)
			}
			b = append(append(b, byte(d.peer.Epoch)), d.peer.Instance...)
			for _, p := range d.pages {
				b = append(b, n.of(p))
			}
			b = append(b, d.completion.GetMac()...)
			b = append(b, d.completion.GetRoot()...)
			b = appendSeals(b, d.seals)
		}
	}
	for _, p := range k.parked {
		b = append(append(b, 'p', p.req, bit(p.bound)|bit(p.sent)<<1|bit(p.said)<<2|bit(p.failed)<<3|bit(p.looks)<<4, byte(p.err), byte(p.count), byte(len(p.queue))), p.ref.Lease[:]...)
		for _, d := range p.core.Sealed() {
			b = append(b, d...)
		}
		b = append(b, p.root...)
		b = append(b, bit(p.core.Err() != nil))
	}
	for _, u := range k.spent {
		b = append(b, 's', u.req, byte(u.role))
	}
	return b
}

func (w *world) appendWorker(b []byte, j int, k *broker, n *namer) []byte {
	s := &w.workers[j]
	b = append(append(b, bit(s.alive)|bit(s.attached)<<1, s.process, s.attaches, s.inc), s.handle[:]...)
	for _, l := range s.leases {
		b = append(append(b, 'w', l.req, byte(l.role), l.inc, byte(l.next), l.stub, bit(l.owned)|bit(l.flying)<<1|bit(l.dead)<<2|bit(l.fault)<<3), l.ref.Lease[:]...)
		b = append(append(b, l.ref.Attach[:]...), byte(l.ref.Epoch))
		if !k.up || l.inc != k.inc {
			continue // memory that nobody else has
		}
		for _, p := range l.pages {
			b = append(b, n.of(p.Page), bit(p.Tag.Slot() != 0 && k.tags[p.Page].Masked() == p.Tag.Masked()), bit(p.Tag.Slot() != 0))
		}
	}
	for _, m := range s.says {
		b = append(append(b, 'm', byte(m.kind), m.req, m.process, bit(m.ok), byte(m.failure), byte(m.rows)), m.ref.Lease[:]...)
		b = append(b, m.ref.Attach[:]...)
		b = binary.AppendUvarint(b, m.ref.Epoch)
		b = appendSeals(b, m.seals)
	}
	return b
}

func appendSeals(b []byte, seals []lease.PageSeal) []byte {
	for _, s := range seals {
		b = append(append(b, byte(s.Index), byte(s.Rows)), s.Digest[:]...)
	}
	return slices.Grow(append(b, '.'), 64)
}
