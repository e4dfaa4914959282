package batch

import (
	"leasehold.dev/protos/errs"
)

// Quantum is how many prompt tokens a tenant gets in one turn.
const Quantum = 64

// ID names a sequence; the caller never uses one twice.
type ID uint64

// Limits bound a planner. All are at least 1.
type Limits struct {
	StepTokens     int // most tokens of a step; more than Sequences, so that prompts advance beside decodes
	Chunk          int // most prompt tokens of one sequence in a step
	Sequences      int // most sequences that hold a slot
	QueueRequests  int // most sequences that wait for a slot
	QueueTokens    int // most prompt tokens that wait to be planned; a single larger prompt finds room in an empty queue
	TenantRequests int // most sequences of one tenant that wait for a slot
}

func (l Limits) check() error {
	if min(l.StepTokens, l.Chunk, l.Sequences, l.QueueRequests, l.QueueTokens, l.TenantRequests) < 1 {
		return errs.New(errs.Invalid, "batch limits: %+v: each must be at least 1", l)
	}
	if l.StepTokens <= l.Sequences {
		return errs.New(errs.Invalid, "batch limits: a step of %d tokens for %d sequences leaves prompts no room", l.StepTokens, l.Sequences)
	}
	return nil
}

// Arrival asks for a place in the queue.
type Arrival struct {
	ID       ID
	Tenant   string
	Tokens   uint32 // prompt tokens to compute, as far as known now; at least 1
	Deadline int64  // see Expire; 0: none
}

// Item is one sequence's part of a step.
type Item struct {
	ID    ID
	Pos   uint32 // position of the first token
	Count uint32 // tokens, at least 1
	Last  bool   // the newest token that the planner knows of is among them: its logits say what follows
}

type state uint8

const (
	held state = iota
	waiting
	idle
	ready
)

type sequence struct {
	id       ID
	tenant   *tenant
	state    state
	running  bool // holds a slot
	pos      uint32
	left     uint32 // prompt tokens not yet planned
	deadline int64
	round    uint64 // the plan that item belongs to
	item     int
}

type tenant struct {
	name    string
	fifo    []*sequence // waiting, in order of Start
	deficit int
	queued  int // sequences without a slot
	running int // sequences with one
}

// Planner is the state of one engine's batch.
type Planner struct {
	lim     Limits
	seqs    map[ID]*sequence
	tenants map[string]*tenant
	ring    []*tenant // tenants with a waiting prompt
	turn    int       // whose turn it is in ring
	ready   []*sequence
	items   []Item
	round   uint64
	queued  int    // sequences without a slot
	tokens  uint64 // prompt tokens not yet planned
	running int
}

// New makes an empty planner; limits that cannot work are Invalid.
func New(l Limits) (*Planner, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	return &Planner{lim: l, seqs: map[ID]*sequence{}, tenants: map[string]*tenant{}}, nil
}

// Load is what a planner holds.
type Load struct {
	Requests int    // sequences that wait for a slot
	Tokens   uint64 // prompt tokens that wait to be planned
	Running  int    // sequences that hold a slot
}

// Load returns the planner's present load.
func (p *Planner) Load() Load { return Load{Requests: p.queued, Tokens: p.tokens, Running: p.running} }

// Admit takes a place in the queue. A full queue is Exhausted, with the numbers; the planner is unchanged then.
func (p *Planner) Admit(a Arrival) error {
	if a.Tokens == 0 || p.seqs[a.ID] != nil {
		return errs.New(errs.Internal, "batch: admit sequence %d with %d tokens: known before, or empty", a.ID, a.Tokens)
	}
	t := p.tenants[a.Tenant]
	switch {
	case p.queued >= p.lim.QueueRequests:
		return errs.New(errs.Exhausted, "queue: %d requests wait, at most %d may", p.queued, p.lim.QueueRequests)
	case t != nil && t.queued >= p.lim.TenantRequests:
		return errs.New(errs.Exhausted, "queue: %d requests of this tenant wait, at most %d may", t.queued, p.lim.TenantRequests)
	case p.tokens > 0 && p.tokens+uint64(a.Tokens) > uint64(p.lim.QueueTokens):
		return errs.New(errs.Exhausted, "queue: %d prompt tokens wait and %d more are asked for, at most %d may wait",
			p.tokens, a.Tokens, p.lim.QueueTokens)
	}
	if t == nil {
		t = &tenant{name: a.Tenant}
		p.tenants[a.Tenant] = t
	}
	p.seqs[a.ID] = &sequence{id: a.ID, tenant: t, left: a.Tokens, deadline: a.Deadline}
	t.queued++
	p.queued++
	p.tokens += uint64(a.Tokens)
	return nil
}

// Start makes a held sequence wait for its turn: count tokens from position pos on. count may differ from what was
// admitted; it is at least 1.
func (p *Planner) Start(id ID, pos, count uint32) error {
	s := p.seqs[id]
	if s == nil || s.state != held || count == 0 {
		return errs.New(errs.Internal, "batch: start of sequence %d with %d tokens: not held, or empty", id, count)
	}
	p.tokens += uint64(count) - uint64(s.left)
	s.pos, s.left, s.state = pos, count, waiting
	t := s.tenant
	if len(t.fifo) == 0 {
		p.ring = append(p.ring, t)
	}
	t.fifo = append(t.fifo, s)
	return nil
}

// Feed gives an idle sequence one more token.
func (p *Planner) Feed(id ID) error {
	s := p.seqs[id]
	if s == nil || s.state != idle {
		return errs.New(errs.Internal, "batch: feed of sequence %d, which is not idle", id)
	}
	s.state = ready
	p.ready = append(p.ready, s)
	return nil
}
