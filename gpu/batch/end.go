package batch

import (
	"cmp"
	"slices"
)

// End forgets a sequence, whatever its state; an unknown one is no error. Nothing of it is planned after this.
func (p *Planner) End(id ID) {
	s := p.seqs[id]
	if s == nil {
		return
	}
	delete(p.seqs, id)
	p.tokens -= uint64(s.left)
	t := s.tenant
	switch s.state {
	case waiting:
		p.unqueue(t, slices.Index(t.fifo, s))
	case ready:
		i := slices.Index(p.ready, s)
		p.ready = slices.Delete(p.ready, i, i+1)
	case held, idle:
	}
	if s.running {
		t.running--
		p.running--
	} else {
		t.queued--
		p.queued--
	}
	if t.queued == 0 && t.running == 0 {
		delete(p.tenants, t.name)
	}
}

// unqueue takes fifo[i] of t away, and t out of the ring when it was the last.
func (p *Planner) unqueue(t *tenant, i int) {
	t.fifo = slices.Delete(t.fifo, i, i+1)
	if len(t.fifo) > 0 {
		return
	}
	t.deficit = 0
	at := slices.Index(p.ring, t)
	p.ring = slices.Delete(p.ring, at, at+1)
	if at < p.turn {
		p.turn--
	}
	if p.turn >= len(p.ring) {
		p.turn = 0
	}
}

// Expire ends every sequence whose deadline is at or before now, and returns them, oldest deadline first. now and
// deadlines are in any one unit that the caller chose.
func (p *Planner) Expire(now int64) []ID {
	var late []*sequence
	for _, s := range p.seqs {
		if s.deadline != 0 && s.deadline <= now {
			late = append(late, s)
		}
	}
	slices.SortFunc(late, func(a, b *sequence) int {
		return cmp.Or(cmp.Compare(a.deadline, b.deadline), cmp.Compare(a.id, b.id))
	})
	ids := make([]ID, len(late))
	for i, s := range late {
		ids[i] = s.id
		p.End(s.id)
	}
	return ids
}
