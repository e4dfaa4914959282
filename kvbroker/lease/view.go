package lease

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
	Worked    bool   // its worker may still touch its pages
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
	Pages    uint32
	States   [States]uint32 // pages in each state
	Draining string         // why nothing is granted; empty: granting
	Leases   []Info         // oldest first
	Tenants  []TenantUse    // that hold pages, by name
	Workers  []WorkerInfo   // oldest first
}
