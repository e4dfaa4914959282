package lease

import "fmt"

// selfCheck recounts everything that the table keeps a running account of. It costs O(pool).
func (t *Table) selfCheck() error {
	owner := make([]*entry, len(t.pages))
	used := map[*tenant]uint32{}
	for id, e := range t.leases {
		if id != e.id || e.by.leases[id] != e && t.workers[e.by.attach] != nil {
			return fmt.Errorf("lease %s is filed wrongly", id)
		}
		if e.state.ended() && !e.working && e.movers == 0 {
			return fmt.Errorf("lease %s is %v with all proofs there", id, e.state)
		}
		used[e.tenant] += uint32(len(e.pages))
		for i, p := range e.pages {
			if owner[p] != nil {
				return fmt.Errorf("page %d is in two leases, %s and %s", p, owner[p].id, id)
			}
			owner[p] = e
			if got := t.pages[p].state; !consistent(e, i, got) {
				return fmt.Errorf("page %d of %v lease %s is %v, the lease is %v", p, e.role, id, got, e.state)
			}
		}
	}
	if len(t.serving) != len(t.leases) {
		return fmt.Errorf("%d admissions are served by %d leases", len(t.serving), len(t.leases))
	}
	for _, n := range t.tenants {
		if n.pages != used[n] {
			return fmt.Errorf("tenant %s is charged for %d pages, its leases have %d", n.name, n.pages, used[n])
		}
	}
	return t.checkPages(owner)
}

func (t *Table) checkPages(owner []*entry) error {
	var count [States]uint32
	free := map[uint32]bool{}
	for _, p := range t.free {
		if free[p] {
			return fmt.Errorf("page %d is twice on the free list", p)
		}
		free[p] = true
	}
	for i, p := range t.pages {
		count[p.state]++
		lone := p.state == Free || p.state == Zeroing
		switch {
		case lone != (owner[i] == nil):
			return fmt.Errorf("page %d is %v, owned: %v", i, p.state, owner[i] != nil)
		case (p.state == Free) != free[uint32(i)]:
			return fmt.Errorf("page %d is %v, on the free list: %v", i, p.state, free[uint32(i)])
		case p.tagged && (lone || p.state.ended() || p.state == Reserved):
			return fmt.Errorf("page %d is %v and tagged", i, p.state)
		case !p.tagged && (p.state == Writing || p.state == Sealed || p.state == Owned):
			return fmt.Errorf("page %d is %v and Nobody's", i, p.state)
		}
	}
	if count != t.count {
		return fmt.Errorf("pages by state %v, counted %v", t.count, count)
	}
	return nil
}

func consistent(e *entry, place int, s State) bool {
	switch e.state {
	case Writing:
		return s == Writing || s == Sealed
	case Reserved:
		return s == Reserved || s == Staged && place < int(e.moved)
	case Staged, Verifying:
		return s == e.state && place < int(e.moved) || s == Reserved && place >= int(e.moved)
	default:
		return s == e.state
	}
}
