package batch

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// model is what the test itself knows of each sequence; it shares nothing with the planner.
type model struct {
	p     *Planner
	lim   Limits
	next  ID
	seqs  map[ID]*known
	ended map[ID]bool
}

type known struct {
	started bool
	pos     uint32
	left    uint32 // prompt tokens not seen in a plan
	fed     bool
	slot    bool
	waited  int // plans without progress while a slot was there to take
}

func (m *model) plan(t *rapid.T) {
	items := m.p.Plan()
	total := 0
	seen := map[ID]bool{}
	prompt := false // a prompt item was seen: decode tokens must be before it
	for _, it := range items {
		k := m.seqs[it.ID]
		switch {
		case m.ended[it.ID] || k == nil:
			t.Fatalf("I3: sequence %d is planned after its end", it.ID)
		case seen[it.ID]:
			t.Fatalf("I1: two items for sequence %d", it.ID)
		case !k.started:
			t.Fatalf("sequence %d is planned while held", it.ID)
		case it.Pos != k.pos:
			t.Fatalf("I2: sequence %d is planned at %d, want %d", it.ID, it.Pos, k.pos)
		case it.Count == 0:
			t.Fatalf("an empty item for sequence %d", it.ID)
		}
		seen[it.ID] = true
		total += int(it.Count)
		k.pos += it.Count
		k.waited = 0
		k.slot = true
		if k.left == 0 { // a decode token
			if !k.fed || it.Count != 1 || !it.Last || prompt {
				t.Fatalf("decode item %+v: fed %v, after a prompt %v", it, k.fed, prompt)
			}
			k.fed = false
			continue
		}
		prompt = true
		if it.Count > k.left || int(it.Count) > m.lim.Chunk {
			t.Fatalf("item %+v: %d tokens are left, chunks have %d", it, k.left, m.lim.Chunk)
		}
		k.left -= it.Count
		if it.Last != (k.left == 0) {
			t.Fatalf("item %+v with %d tokens left", it, k.left)
		}
	}
	if total > m.lim.StepTokens {
		t.Fatalf("I1: a step of %d tokens, budget %d", total, m.lim.StepTokens)
	}
	m.check(t, seen)
}

func (m *model) check(t *rapid.T, seen map[ID]bool) {
	slots, ready := 0, 0
	for _, k := range m.seqs {
		if k.slot {
			slots++
		}
	}
	if slots > m.lim.Sequences {
		t.Fatalf("I4: %d sequences hold a slot, at most %d may", slots, m.lim.Sequences)
	}
	for id, k := range m.seqs {
		if k.fed && !seen[id] {
			ready++
		}
		if !k.slot || k.left == 0 || seen[id] {
			continue
		}
		// In each plan at least StepTokens-Sequences prompt tokens go round in turns of Quantum; within the tenant all
		// prompts before this one can only shrink.
		k.waited++
		if bound := m.bound(); k.waited > bound {
			t.Fatalf("I5: sequence %d made no progress in %d plans", id, bound)
		}
	}
	if ready > 0 {
		t.Fatalf("%d ready sequences were left out of a plan", ready)
	}
	var left uint64
	for _, k := range m.seqs {
		left += uint64(k.left)
	}
	if got := m.p.Load(); got.Tokens != left || got.Running != slots || got.Requests != len(m.seqs)-slots {
		t.Fatalf("load is %+v, want %d requests, %d tokens, %d running", got, len(m.seqs)-slots, left, slots)
	}
}

// bound is how many plans pass at most before everything that waits now is planned in full.
func (m *model) bound() int {
	var left int
	for _, k := range m.seqs {
		left += int(k.left) + Quantum
	}
	return left/(m.lim.StepTokens-m.lim.Sequences) + len(m.seqs) + 2
}

func (m *model) end(id ID) {
	m.p.End(id)
	delete(m.seqs, id)
	m.ended[id] = true
}

func (m *model) ids(want func(*known) bool) []ID {
	var ids []ID
	for id, k := range m.seqs {
		if want(k) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func TestPlannerKeepsItsInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seqs := rapid.IntRange(1, 6).Draw(t, "sequences")
		m := &model{seqs: map[ID]*known{}, ended: map[ID]bool{}, lim: Limits{
			StepTokens: seqs + rapid.IntRange(1, 150).Draw(t, "room"), Chunk: rapid.IntRange(1, 130).Draw(t, "chunk"),
			Sequences: seqs, QueueRequests: 12, QueueTokens: 2000, TenantRequests: 6}}
		p, err := New(m.lim)
		if err != nil {
			t.Fatal(err)
		}
		m.p = p
		pick := func(t *rapid.T, ids []ID) ID {
			if len(ids) == 0 {
				t.Skip("no such sequence")
			}
			return rapid.SampledFrom(ids).Draw(t, "id")
		}
		t.Repeat(map[string]func(*rapid.T){
			"admit": func(t *rapid.T) {
				m.next++
				n := rapid.Uint32Range(1, 400).Draw(t, "tokens")
				tenant := fmt.Sprint("t", rapid.IntRange(0, 3).Draw(t, "tenant"))
				before := p.Load()
				if err := p.Admit(Arrival{ID: m.next, Tenant: tenant, Tokens: n, Deadline: int64(m.next)}); err != nil {
					if p.Load() != before {
						t.Fatalf("a refusal changed the load: %+v, was %+v", p.Load(), before)
					}
					return
				}
				m.seqs[m.next] = &known{left: n}
			},
			"start": func(t *rapid.T) {
				id := pick(t, m.ids(func(k *known) bool { return !k.started }))
				k := m.seqs[id]
				k.started, k.pos, k.left = true, rapid.Uint32Range(0, 200).Draw(t, "pos"), rapid.Uint32Range(1, 400).Draw(t, "count")
				if err := p.Start(id, k.pos, k.left); err != nil {
					t.Fatal(err)
				}
			},
			"feed": func(t *rapid.T) {
				id := pick(t, m.ids(func(k *known) bool { return k.started && k.left == 0 && !k.fed }))
				m.seqs[id].fed = true
				if err := p.Feed(id); err != nil {
					t.Fatal(err)
				}
			},
			"end": func(t *rapid.T) { m.end(pick(t, m.ids(func(*known) bool { return true }))) },
			"expire": func(t *rapid.T) {
				now := rapid.Int64Range(0, int64(m.next)/2).Draw(t, "now")
				got := p.Expire(now)
				want := m.ids(func(*known) bool { return true })
				want = slices.DeleteFunc(want, func(id ID) bool { return int64(id) > now })
				if !slices.Equal(got, want) {
					t.Fatalf("Expire(%d) = %v, want %v", now, got, want)
				}
				for _, id := range want {
					m.end(id)
				}
			},
			"plan": m.plan,
			"":     func(*rapid.T) {},
		})
	})
}

// Two tenants that always have prompts waiting get equal shares, whatever the sizes of their prompts.
func TestTenantsShareTheBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := []uint32{rapid.Uint32Range(1, 500).Draw(t, "a"), rapid.Uint32Range(1, 500).Draw(t, "b")}
		p, err := New(Limits{StepTokens: 140, Chunk: 128, Sequences: 12, QueueRequests: 100, QueueTokens: 1 << 30, TenantRequests: 100})
		if err != nil {
			t.Fatal(err)
		}
		var next ID
		owner := map[ID]int{}
		got := [2]int{}
		for range 400 {
			for i, size := range sizes { // each always has 3 prompts that wait
				for p.tenants[fmt.Sprint(i)] == nil || len(p.tenants[fmt.Sprint(i)].fifo) < 3 {
					next++
					owner[next] = i
					if err := p.Admit(Arrival{ID: next, Tenant: fmt.Sprint(i), Tokens: size}); err != nil {
						t.Fatal(err)
					}
					if err := p.Start(next, 0, size); err != nil {
						t.Fatal(err)
					}
				}
			}
			var done []ID
			for _, it := range p.Plan() {
				got[owner[it.ID]] += int(it.Count)
				if it.Last {
					done = append(done, it.ID)
				}
			}
			for _, id := range done {
				p.End(id)
			}
		}
		// Prompts far under a turn leave room that the other takes: compare only when both can use their turns.
		if min(sizes[0], sizes[1])*3 >= 2*Quantum {
			if d := got[0] - got[1]; d > 4*Quantum || -d > 4*Quantum {
				t.Fatalf("shares of prompts of %v tokens are %v", sizes, got)
			}
		}
	})
}
