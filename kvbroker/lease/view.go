package lease

import (
	"cmp"
	"maps"
	"slices"
)

// Info is what the table knows of a lease.
type Info struct {
	Lease     ID
	Admission Admission
	Tenant    string
	Attach    Attach
	Worker    string
	Epoch     uint64
	Role      Role
	State     State
	Pages     uint32
	Moved     uint32
	Rows      uint32 // sealed, or verified on arrival
	Movers    uint32 // that may still touch its pages
	Working   bool   // its worker may still touch its pages
}

// TenantUse is what one tenant is charged for.
type TenantUse struct {
	Tenant string
	Pages  uint32
	Quota  uint32 // 0: none
}

// WorkerInfo is one attached worker.
type WorkerInfo struct {
	Attach Attach
	Worker string
	PID    uint32
	Epoch  uint64
	Leases uint32
}

// Snapshot is the table for operators. It costs O(leases + tenants).
type Snapshot struct {
	Pages         uint32
	States        [States]uint32 // pages in each state
	QuarantineCap uint32         // pages
	Draining      string         // why nothing is granted; empty: granting
	Leases        []Info         // oldest first
	Tenants       []TenantUse    // that hold pages, by name
	Workers       []WorkerInfo   // oldest first
}

// Get returns what is known of a lease that has not reached Zeroing.
func (t *Table) Get(id ID) (Info, bool) {
	if e := t.leases[id]; e != nil {
		return e.info(), true
	}
	return Info{}, false
}

// Check says whether r names a lease that its worker may use now: NotFound, Stale, or the kind and reason of its end.
func (t *Table) Check(r Ref) error {
	_, err := t.owned(r)
	return err
}

// Pages of a lease in order, as last tagged; Nobody's have tag 0. Nil when the lease is not known.
func (t *Table) Pages(id ID) []PageTag {
	if e := t.leases[id]; e != nil {
		return t.tagsOf(e)
	}
	return nil
}

// Free pages now.
func (t *Table) Free() uint32 { return t.count[Free] }

// Draining says why nothing is granted; empty: granting.
func (t *Table) Draining() string {
	if t.drained == "" && t.over {
		return t.capReason()
	}
	return t.drained
}

// Snapshot for operators. It costs O(leases + tenants), and is a copy.
func (t *Table) Snapshot() Snapshot {
	s := Snapshot{Pages: t.cfg.Pages, States: t.count, QuarantineCap: t.cfg.QuarantineCap, Draining: t.Draining()}
	for _, e := range oldestFirst(t.leases) {
		s.Leases = append(s.Leases, e.info())
	}
	for _, n := range t.tenants {
		if n.pages > 0 {
			s.Tenants = append(s.Tenants, TenantUse{n.name, n.pages, t.cfg.Quota})
		}
	}
	slices.SortFunc(s.Tenants, func(a, b TenantUse) int { return cmp.Compare(a.Tenant, b.Tenant) })
	for _, w := range slices.SortedFunc(maps.Values(t.workers), func(a, b *worker) int { return cmp.Compare(a.seq, b.seq) }) {
		s.Workers = append(s.Workers, WorkerInfo{w.attach, w.name, w.pid, w.epoch, uint32(len(w.leases))})
	}
	return s
}

func (e *entry) info() Info {
	rows := uint32(0)
	for _, n := range e.seals {
		rows += n.Rows
	}
	if e.role == Destination {
		rows = 0
		if e.state == Owned {
			rows = e.rows
		}
	}
	return Info{Lease: e.id, Admission: e.admission, Tenant: e.tenant.name, Attach: e.by.attach, Worker: e.by.name, Epoch: e.epoch,
		Role: e.role, State: e.state, Pages: uint32(len(e.pages)), Moved: e.moved, Rows: rows, Movers: e.movers, Working: e.working}
}
