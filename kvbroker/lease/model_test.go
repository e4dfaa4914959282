package lease

import (
	"fmt"

	"leasehold.dev/gpu/pool"
)

// world is a naive model of what the table is about: the tag memory, who may touch which page, and who pays. It learns of
// the table only by its effects, keeps no count that it could scan for instead, and knows nothing of the table's states.
type world struct {
	pages   uint32
	quota   uint32
	tags    []pool.Tag
	holder  []string        // of each page: a lease, "zeroing", or free
	granted map[uint64]bool // generations that were written for a tenant
	ended   map[uint64]bool // and for Nobody
	slots   map[string]uint32
	leases  map[ID]*model
}

type model struct {
	Reserve
	own      []uint32 // pages, by place
	touchers map[string]int
	tagged   bool // it was told tags that its kernels may use
	over     bool // it ended, well or badly
}

func newWorld(pages, quota uint32) *world {
	return &world{pages: pages, quota: quota, tags: make([]pool.Tag, pages), holder: make([]string, pages),
		granted: map[uint64]bool{}, ended: map[uint64]bool{}, slots: map[string]uint32{}, leases: map[ID]*model{}}
}

// perform carries out effects as a broker would, and complains about any that a broker must never be asked for.
func (w *world) perform(ev Event, effects []Effect) error {
	for i, e := range effects {
		switch e := e.(type) {
		case WriteTags:
			if i != 0 {
				return fmt.Errorf("tags are effect %d", i)
			}
			if err := w.write(e.Tags); err != nil {
				return err
			}
		case Granted:
			if err := w.grant(ev, e); err != nil {
				return err
			}
		case Record:
			if m := w.leases[e.Lease]; m != nil && (e.Kind == WasReleased || e.Kind == WasQuarantined) {
				m.over = true
			}
			if h, ok := ev.(Handover); ok && e.Kind == WasHandedOver {
				w.handOver(w.leases[h.From], w.leases[h.To])
			}
		case Zero:
			if err := w.zero(e); err != nil {
				return err
			}
		}
	}
	for id, m := range w.leases {
		if m.over && len(m.touchers) == 0 {
			return fmt.Errorf("%s has ended, nobody may touch it, and there was no Zero", nameOf(id))
		}
	}
	return nil
}

func (w *world) write(tags []PageTag) error {
	for _, n := range tags {
		old, g := w.tags[n.Page], n.Tag.Generation()
		again := n.Tag.Masked() == old.Masked() && n.Tag.Sealed() && !old.Sealed()
		switch {
		case n.Tag.Slot() == pool.Nobody && (w.ended[g] || w.granted[g]):
			return fmt.Errorf("page %d: generation %d of Nobody was used before", n.Page, g)
		case n.Tag.Slot() == pool.Nobody:
			w.ended[g] = true
		case again: // sealing
		case w.granted[g] || w.ended[g]:
			return fmt.Errorf("page %d: generation %d was used before", n.Page, g)
		default:
			w.granted[g] = true
		}
		w.tags[n.Page] = n.Tag
	}
	return nil
}

func (w *world) grant(ev Event, g Granted) error {
	switch ev := ev.(type) {
	case Reserve:
		m := &model{Reserve: ev, touchers: map[string]int{"worker": 1}, tagged: ev.Role != Destination}
		for _, n := range g.Pages {
			if w.holder[n.Page] != "" {
				return fmt.Errorf("page %d is granted, %s has it", n.Page, w.holder[n.Page])
			}
			w.holder[n.Page] = nameOf(ev.Lease)
			m.own = append(m.own, n.Page)
		}
		w.leases[ev.Lease] = m
	case Verified:
		w.leases[ev.Lease].tagged = true
	default:
		return fmt.Errorf("a grant after %T", ev)
	}
	for i, n := range g.Pages {
		m := w.leases[g.Lease]
		switch slot, known := w.slots[m.Tenant]; {
		case m.own[i] != n.Page:
			return fmt.Errorf("place %d of %s is page %d, was %d", i, nameOf(g.Lease), n.Page, m.own[i])
		case !m.tagged && n.Tag != 0:
			return fmt.Errorf("page %d of %s has tag %v before its check", n.Page, nameOf(g.Lease), n.Tag)
		case !m.tagged:
		case n.Tag != w.tags[n.Page]:
			return fmt.Errorf("page %d is granted with %v, its tag is %v", n.Page, n.Tag, w.tags[n.Page])
		case known && slot != n.Tag.Slot() || n.Tag.Slot() == pool.Nobody:
			return fmt.Errorf("page %d has slot %d, its tenant's is %d", n.Page, n.Tag.Slot(), slot)
		default:
			w.slots[m.Tenant] = n.Tag.Slot()
		}
	}
	return nil
}

func (w *world) handOver(from, to *model) {
	for _, p := range from.own {
		w.holder[p] = nameOf(to.Lease)
	}
	to.own = append(from.own[:len(from.own):len(from.own)], to.own...)
	delete(w.leases, from.Lease)
}

func (w *world) zero(z Zero) error {
	m := w.leases[z.Lease]
	switch {
	case m == nil || !m.over:
		return fmt.Errorf("%s is cleared and has not ended", nameOf(z.Lease))
	case len(m.touchers) > 0:
		return fmt.Errorf("%s is cleared while %v may touch it", nameOf(z.Lease), m.touchers)
	case fmt.Sprint(z.Pages) != fmt.Sprint(m.own):
		return fmt.Errorf("%s is cleared in pages %v, it has %v", nameOf(z.Lease), z.Pages, m.own)
	}
	for _, p := range m.own {
		w.holder[p] = "zeroing"
	}
	delete(w.leases, z.Lease)
	return nil
}

// prove tells the model what an accepted event proves about who may still touch pages. It goes before perform.
func (w *world) prove(ev Event) {
	switch ev := ev.(type) {
	case PullStarted:
		w.leases[ev.Lease].touchers["mover"]++
	case PullEnded:
		if m := w.leases[ev.Lease]; m != nil {
			if m.touchers["mover"]--; m.touchers["mover"] <= 0 {
				delete(m.touchers, "mover")
			}
		}
	case Finish:
		if m := w.leases[ev.Ref.Lease]; m != nil {
			delete(m.touchers, "worker")
		}
	case Retired:
		if m := w.leases[ev.Ref.Lease]; m != nil {
			delete(m.touchers, "worker")
		}
	case WorkerGone:
		for _, m := range w.leases {
			if m.Attach == ev.Attach {
				delete(m.touchers, "worker")
			}
		}
	case Zeroed:
		for _, p := range ev.Pages {
			w.holder[p] = ""
		}
	}
}

// agree compares the model with what the table says of itself.
func (w *world) agree(s Snapshot) error {
	held := map[string]uint32{}
	sum := map[string]uint32{}
	for _, h := range w.holder {
		held[h]++
	}
	if s.States[Free] != held[""] || s.States[Zeroing] != held["zeroing"] {
		return fmt.Errorf("%d free and %d to be cleared, the model has %d and %d", s.States[Free], s.States[Zeroing], held[""], held["zeroing"])
	}
	var total uint32
	for _, n := range s.States {
		total += n
	}
	if total != w.pages || len(s.Leases) != len(w.leases) {
		return fmt.Errorf("%d pages and %d leases, the model has %d and %d", total, len(s.Leases), w.pages, len(w.leases))
	}
	for _, l := range s.Leases {
		m := w.leases[l.Lease]
		if m == nil || l.Pages != held[nameOf(l.Lease)] || l.Working != (m.touchers["worker"] > 0) || int(l.Movers) != m.touchers["mover"] {
			return fmt.Errorf("lease %s: %+v, the model has %+v", nameOf(l.Lease), l, m)
		}
		if l.State.ended() != m.over {
			return fmt.Errorf("lease %s is %v, the model says ended: %v", nameOf(l.Lease), l.State, m.over)
		}
		sum[m.Tenant] += l.Pages
	}
	for _, n := range s.Tenants {
		if n.Pages != sum[n.Tenant] || w.quota > 0 && n.Pages > w.quota {
			return fmt.Errorf("tenant %s is charged for %d pages, its leases have %d, the quota is %d", n.Tenant, n.Pages, sum[n.Tenant], w.quota)
		}
	}
	return w.fenced()
}

// fenced checks the tag memory as a kernel would see it.
func (w *world) fenced() error {
	for p, h := range w.holder {
		var m *model
		if h != "" && h != "zeroing" {
			m = w.leases[name16[ID](h)]
		}
		usable := m != nil && m.tagged && !m.over
		if slot := w.tags[p].Slot(); usable && slot != w.slots[m.Tenant] {
			return fmt.Errorf("page %d of %s has slot %d", p, h, slot)
		} else if handed := m != nil && !m.over && m.FromSource; !usable && !handed && slot != pool.Nobody {
			return fmt.Errorf("page %d of %q has slot %d and is nobody's to use", p, h, slot)
		}
	}
	return nil
}
