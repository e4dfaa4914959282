package lease

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
)

// Clone returns a table that goes its own way from here, for who looks at several futures of one state. It shares
// nothing that a Step of either changes.
func (t *Table) Clone() *Table {
	c := *t
	c.pages, c.free = slices.Clone(t.pages), slices.Clone(t.free)
	c.ended = endings{of: maps.Clone(t.ended.of), ring: slices.Clone(t.ended.ring), next: t.ended.next}
	c.serving = maps.Clone(t.serving)
	c.tenants = make(map[string]*tenant, len(t.tenants))
	for name, n := range t.tenants {
		own := *n
		c.tenants[name] = &own
	}
	c.workers = make(map[Attach]*worker, len(t.workers))
	for a, w := range t.workers {
		own := *w
		own.leases = make(map[ID]*entry, len(w.leases))
		c.workers[a] = &own
	}
	c.leases = make(map[ID]*entry, len(t.leases))
	gone := map[*worker]*worker{} // that have leases still
	for id, e := range t.leases {
		own := *e
		own.pages, own.seals = slices.Clone(e.pages), slices.Clone(e.seals)
		own.tenant = c.tenants[e.tenant.name]
		if own.by = c.workers[e.by.attach]; own.by == nil {
			if own.by = gone[e.by]; own.by == nil {
				w := *e.by
				w.leases = map[ID]*entry{}
				own.by = &w
				gone[e.by] = &w
			}
		}
		own.by.leases[id] = &own
		c.leases[id] = &own
	}
	return &c
}

// AppendState appends to b all that decides what the table does from here on, so that tables with equal bytes give equal
// effects to equal events, but for what is given out: page numbers, slots and generations. page names a page, in the order
// in which pages come up: pages of leases, oldest first and by place, then free ones in the order in which they are granted.
// Pages that are in neither are Zeroing. Texts of reasons are left out.
func (t *Table) AppendState(b []byte, page func(uint32) byte) []byte {
	num := func(n uint64) { b = binary.AppendUvarint(b, n) }
	flag := func(on bool) {
		if on {
			num(1)
		} else {
			num(0)
		}
	}
	num(uint64(len(t.leases)))
	for _, e := range oldestFirst(t.leases) {
		b = append(append(append(b, e.id[:]...), e.admission[:]...), e.by.attach[:]...)
		b = append(append(b, e.tenant.name...), 0, byte(e.role), byte(e.state), byte(e.end.kind))
		num(e.epoch)
		num(uint64(e.moved))
		num(uint64(e.rows))
		num(uint64(e.staged))
		num(uint64(e.first))
		num(uint64(e.movers))
		flag(e.fromSource)
		flag(e.finished)
		flag(e.working)
		num(uint64(len(e.pages)))
		for _, p := range e.pages {
			b = append(b, page(p), byte(t.pages[p].state))
			flag(t.pages[p].tagged)
			flag(t.pages[p].sealed)
		}
		num(uint64(len(e.seals)))
		for _, n := range e.seals {
			num(uint64(n.Index))
			num(uint64(n.Rows))
			b = append(b, n.Digest[:]...)
		}
	}
	num(uint64(len(t.free)))
	for _, p := range slices.Backward(t.free) {
		b = append(b, page(p))
	}
	for _, w := range slices.SortedFunc(maps.Values(t.workers), func(a, b *worker) int { return cmp.Compare(a.seq, b.seq) }) {
		b = append(b, w.attach[:]...)
		num(w.epoch)
	}
	for _, id := range slices.SortedFunc(maps.Keys(t.ended.of), func(a, b ID) int { return bytes.Compare(a[:], b[:]) }) {
		end := t.ended.of[id]
		b = append(append(append(b, id[:]...), end.attach[:]...), byte(end.kind))
	}
	for _, name := range slices.Sorted(maps.Keys(t.tenants)) {
		if n := t.tenants[name]; n.pages > 0 {
			b = append(append(b, name...), 0)
			num(uint64(n.pages))
		}
	}
	flag(t.over)
	flag(t.drained != "")
	return b
}
