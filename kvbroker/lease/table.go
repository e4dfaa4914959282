package lease

import (
	"leasehold.dev/gpu/pool"
	"leasehold.dev/protos/errs"
)

// Config of a table.
type Config struct {
	// Pages of the pool, at least 1.
	Pages uint32
	// Quota is the most pages that one tenant is charged for; 0: no quota.
	Quota uint32
	// Share bounds a tenant that floods: with a lease of another admission it may hold at most Share times as many pages as
	// are left free after the grant. So k tenants that take all they can end with Share of k*Share + 1 parts each, and a part
	// stays free for who comes next; a tenant's first admission may take whatever is free. 0: no such rule.
	Share uint32
	// QuarantineCap: with more pages than this in quarantine nothing is granted; 0: half of the pool.
	QuarantineCap uint32
	// Generation is where tags start: random, new for each instance.
	Generation uint64
}

// Table holds the state of every page of one pool. It is not safe for concurrent use.
type Table struct {
	cfg     Config
	pages   []page
	free    []uint32 // a stack
	count   [States]uint32
	leases  map[ID]*entry
	serving map[serves]ID
	ended   endings
	tenants map[string]*tenant
	workers map[Attach]*worker
	slots   uint32 // given out
	seq     uint64 // of leases and workers, for order
	pairs   uint64 // generations given out, in pairs
	drained string // by the operator
	over    bool   // the quarantine's cap
}

// page is 16 bytes: there may be 10^6 of them.
type page struct {
	generation uint64 // of the last grant; the next one ends it
	state      State
	tagged     bool // with its owner's slot; else Nobody's
	sealed     bool
}

// entry is one lease that has not reached Zeroing.
type entry struct {
	id         ID
	seq        uint64
	admission  Admission
	role       Role
	tenant     *tenant
	by         *worker
	epoch      uint64
	pages      []uint32
	moved      uint32
	rows       uint32
	fromSource bool

	state    State
	finished bool
	staged   uint32     // moved pages that have arrived
	first    uint32     // place of seals[0]
	seals    []PageSeal // of places [first, first+len(seals))

	working bool   // the worker may still touch the pages
	movers  uint32 // that may still touch the pages
	end     ending // how it ended, once it has
}

type serves struct {
	admission Admission
	role      Role
}

type tenant struct {
	name  string
	slot  uint32
	pages uint32
}

type worker struct {
	attach Attach
	seq    uint64
	name   string
	pid    uint32
	epoch  uint64
	leases map[ID]*entry
}

// New returns a table whose pages are all free, zeroed and Nobody's.
func New(c Config) (*Table, error) {
	if c.Pages == 0 {
		return nil, errs.New(errs.Invalid, "lease table: a pool of 0 pages")
	}
	if c.QuarantineCap == 0 {
		c.QuarantineCap = (c.Pages + 1) / 2
	}
	t := &Table{
		cfg:     c,
		pages:   make([]page, c.Pages),
		free:    make([]uint32, c.Pages),
		leases:  map[ID]*entry{},
		serving: map[serves]ID{},
		ended:   endings{of: map[ID]ending{}},
		tenants: map[string]*tenant{},
		workers: map[Attach]*worker{},
	}
	for i := range t.free {
		t.free[i] = c.Pages - 1 - uint32(i) // page 0 on top
	}
	t.count[Free] = c.Pages
	return t, nil
}

// Step applies ev and returns what the caller must do. On error the table is unchanged. Its cost is in the pages of the
// leases that ev is about, not in the pool.
func (t *Table) Step(ev Event) ([]Effect, error) {
	var s step
	if err := t.apply(&s, ev); err != nil {
		return nil, err
	}
	t.watchCap(&s)
	return s.effects(), nil
}

func (t *Table) apply(s *step, ev Event) error {
	switch ev := ev.(type) {
	case Attached:
		return t.attach(ev)
	case WorkerGone:
		return t.workerGone(s, ev)
	case Detached:
		return t.detached(s, ev)
	case Reserve:
		return t.reserve(s, ev)
	case Seal:
		return t.seal(s, ev)
	case Finish:
		return t.finish(s, ev)
	case PullStarted:
		return t.pullStarted(ev)
	case PullEnded:
		return t.pullEnded(s, ev)
	case Arrived:
		return t.arrived(s, ev)
	case Verify:
		return t.verify(ev)
	case Verified:
		return t.verified(s, ev)
	case TransferFailed:
		return t.transferFailed(s, ev)
	case Handover:
		return t.handover(s, ev)
	case Retired:
		return t.retired(s, ev)
	case Expire:
		return t.expire(s, ev)
	case Revoke:
		return t.revoke(s, ev)
	case Zeroed:
		return t.zeroed(ev)
	case Drain:
		return t.drain(s, ev)
	}
	return errs.New(errs.Internal, "lease table: unknown event %T", ev)
}

// step collects effects. Tags go first, whatever the order in which a step comes to them.
type step struct {
	tags []PageTag
	rest []Effect
}

func (s *step) do(e Effect) { s.rest = append(s.rest, e) }

func (s *step) ignore(id ID, reason string) error {
	s.do(Ignored{id, reason})
	return nil
}

func (s *step) effects() []Effect {
	if len(s.tags) == 0 {
		return s.rest
	}
	return append([]Effect{WriteTags{s.tags}}, s.rest...)
}

func (t *Table) set(p uint32, s State) {
	t.count[t.pages[p].state]--
	t.count[s]++
	t.pages[p].state = s
}

// nextPair gives out a generation and the one after it: a grant's own, and Nobody's that ends it.
func (t *Table) nextPair() uint64 {
	g := t.cfg.Generation + 2*t.pairs
	t.pairs++
	return g & pool.MaxGeneration
}

// pairsLeft before a generation would come again.
func (t *Table) pairsLeft() uint64 { return (pool.MaxGeneration+1)/2 - t.pairs }

func (t *Table) tagOf(e *entry, p uint32) pool.Tag {
	if g := &t.pages[p]; g.tagged {
		return pool.MakeTag(e.tenant.slot, g.generation).WithSealed(g.sealed)
	}
	return 0
}

// tag gives a page to e's tenant.
func (t *Table) tag(s *step, e *entry, p uint32) {
	t.pages[p].tagged = true
	s.tags = append(s.tags, PageTag{p, t.tagOf(e, p)})
}

// untag makes a page Nobody's, with the generation that ends its grant.
func (t *Table) untag(s *step, p uint32) {
	g := &t.pages[p]
	g.tagged, g.sealed = false, false
	s.tags = append(s.tags, PageTag{p, pool.MakeTag(pool.Nobody, g.generation+1)})
}

func (t *Table) watchCap(s *step) {
	over := t.count[Quarantine] > t.cfg.QuarantineCap
	if over == t.over {
		return
	}
	t.over = over
	if t.drained == "" {
		s.do(Draining{t.Draining()})
	}
}
