package batch

// Plan returns the next step, empty when there is nothing to compute. The slice is valid until the next call.
func (p *Planner) Plan() []Item {
	p.items = p.items[:0]
	p.round++
	for _, s := range p.ready {
		p.items = append(p.items, Item{ID: s.id, Pos: s.pos, Count: 1, Last: true})
		s.pos++
		s.state = idle
	}
	p.ready = p.ready[:0]
	p.prompts(p.lim.StepTokens - len(p.items))
	return p.items
}

// prompts spends budget on waiting prompts, a turn a tenant, until it is spent or a whole round has found no use for it.
func (p *Planner) prompts(budget int) {
	for idleTurns := 0; budget > 0 && idleTurns < len(p.ring); {
		t := p.ring[p.turn]
		if t.deficit == 0 {
			t.deficit = Quantum
		}
		before := len(p.ring)
		took := p.serve(t, budget)
		budget -= took
		if len(p.ring) < before { // its last prompt is planned: the turn is the next one's already
			idleTurns = 0
			continue
		}
		if t.deficit > 0 && budget == 0 {
			return // the rest of its turn comes first in the next plan
		}
		t.deficit = 0
		p.turn = (p.turn + 1) % len(p.ring)
		if took > 0 {
			idleTurns = 0
		} else {
			idleTurns++
		}
	}
}

// serve plans tokens of t, at most its deficit and budget, and returns how many.
func (p *Planner) serve(t *tenant, budget int) (took int) {
	for i := 0; i < len(t.fifo) && t.deficit > 0 && took < budget; {
		s := t.fifo[i]
		if !s.running && !p.slot(t) {
			return took
		}
		n := min(int(s.left), t.deficit, budget-took)
		if s.round == p.round {
			n = min(n, p.lim.Chunk-int(p.items[s.item].Count))
		} else {
			n = min(n, p.lim.Chunk)
		}
		if n == 0 {
			i++
			continue
		}
		p.extend(s, n)
		took += n
		t.deficit -= n
		if s.left == 0 {
			s.state = idle
			p.items[s.item].Last = true
			p.unqueue(t, i)
		}
	}
	return took
}

// slot says whether t may take one more slot. The last quarter is kept for tenants that hold none, so that one tenant's
// long answers do not lock others out.
func (p *Planner) slot(t *tenant) bool {
	free := p.lim.Sequences - p.running
	return free > p.lim.Sequences/4 || free > 0 && t.running == 0
}

func (p *Planner) extend(s *sequence, n int) {
	if !s.running {
		s.running = true
		s.tenant.running++
		s.tenant.queued--
		p.running++
		p.queued--
	}
	if s.round != p.round {
		s.round, s.item = p.round, len(p.items)
		p.items = append(p.items, Item{ID: s.id, Pos: s.pos})
	}
	p.items[s.item].Count += uint32(n)
	s.pos += uint32(n)
	s.left -= uint32(n)
	p.tokens -= uint64(n)
}
