package lease

import "leasehold.dev/protos/errs"

// Config of a table.
type Config struct {
	// Pages of the pool, at least 1.
	Pages uint32
	// Quota is the most pages that one tenant is charged for; 0: no quota.
	Quota uint32
	// QuarantineCap: with more pages than this in quarantine nothing is granted; 0: half of the pool.
	QuarantineCap uint32
	// Generation is where tags start: random, new for each instance.
	Generation uint64
}

// Table holds the state of every page of one pool. It is not safe for concurrent use.
type Table struct{}

// New returns a table whose pages are all free, zeroed and Nobody's.
func New(c Config) (*Table, error) {
	if c.Pages == 0 {
		return nil, errs.New(errs.Invalid, "lease table: 0 pages")
	}
	return &Table{}, nil
}

// Step applies ev and returns what the caller must do. On error the table is unchanged.
func (t *Table) Step(ev Event) ([]Effect, error) { return nil, errs.New(errs.Internal, "lease table: event %T", ev) }

// Get returns what is known of a lease that has not ended in Zeroing.
func (t *Table) Get(id ID) (Info, bool) { return Info{}, false }

// Check says whether r names a lease that its worker may use now: NotFound, Stale, or the kind and reason of its end.
func (t *Table) Check(r Ref) error { return nil }

// Pages of a lease in order, as last written: Nobody's have tag 0.
func (t *Table) Pages(id ID) []PageTag { return nil }

// Free pages now.
func (t *Table) Free() uint32 { return 0 }

// Draining says why nothing is granted; empty: granting.
func (t *Table) Draining() string { return "" }

// Snapshot for operators.
func (t *Table) Snapshot() Snapshot { return Snapshot{} }
