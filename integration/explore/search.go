package explore

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Found is what a search brought.
type Found struct {
	Plan        string
	Bug         Bug
	States      int
	Transitions int
	Depth       int        // actions in the longest histories that were looked at
	Complete    bool       // no history of any length leads to a state that was not looked at
	Succeeded   int        // states in which a request has succeeded
	Quarantined int        // with pages in quarantine
	Taken       [kinds]int // actions, by kind
	Took        time.Duration
	Violation   error    // nil: none
	History     []uint32 // the shortest to it
}

// state is how the search remembers one: by the action that first led to it.
type state struct {
	parent int32
	action uint32
}

// next is a state that an expansion has come to.
type next struct {
	print  fingerprint
	flags  uint8 // of the state: succeeded, quarantined
	parent int32
	action uint32
	bad    error
	after  []action // of a bad one: what led from the parent to it, when that was settling
}

// Search looks at every state of p, by the length of the shortest history to it, until a check fails, nothing new comes, the
// plan's depth is reached, or ctx ends. settle asks of every state that the pools can come back to their baseline. Equal plans
// give equal results, on any number of cores.
func Search(ctx context.Context, p *Plan, settle bool) (Found, error) {
	start := time.Now()
	root, err := newWorld(p)
	if err != nil {
		return Found{}, err
	}
	s := &search{root: root, settle: settle, seen: map[fingerprint]struct{}{}, states: []state{{parent: -1}}}
	print, _ := root.fingerprint(nil)
	s.seen[print] = struct{}{}
	f := Found{Plan: p.Name, Bug: p.Bug, Violation: root.check()}
	for from, depth := 0, 0; f.Violation == nil; depth++ {
		to, grow := len(s.states), p.Depth == 0 || depth < p.Depth
		if f.Violation, f.History, err = s.level(ctx, from, to, grow, &f); err != nil {
			return f, err
		}
		f.Depth, f.Complete = depth, grow && len(s.states) == to && f.Violation == nil
		if !grow || f.Complete {
			break
		}
		from = to
	}
	f.States, f.Took = len(s.states), time.Since(start)
	return f, nil
}

type search struct {
	root   *world
	settle bool
	seen   map[fingerprint]struct{}
	states []state
}

// batch is how many states are expanded before what came of them is merged.
const batch = 4096

// level looks at states [from, to). grow: and adds those that one action more leads to.
func (s *search) level(ctx context.Context, from, to int, grow bool, f *Found) (error, []uint32, error) {
	for ; from < to; from += batch {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		for _, n := range s.expand(from, min(from+batch, to), grow) {
			if n.bad != nil {
				h := s.history(n.parent)
				for _, a := range n.after {
					h = append(h, pack(a))
				}
				if n.after == nil {
					h = append(h, n.action)
				}
				return n.bad, h, nil
			}
			f.Transitions++
			f.Taken[n.action>>16]++
			if _, known := s.seen[n.print]; !known {
				s.seen[n.print] = struct{}{}
				s.states = append(s.states, state{n.parent, n.action})
				f.Succeeded += int(n.flags & 1)
				f.Quarantined += int(n.flags >> 1)
			}
		}
	}
	return nil, nil, nil
}

// expand shares states [from, to) out, and returns what came of them in their order. Nothing is changed meanwhile.
func (s *search) expand(from, to int, grow bool) []next {
	parts := runtime.GOMAXPROCS(0)
	out := make([][]next, parts)
	var wg sync.WaitGroup
	for i := range parts {
		lo, hi := from+(to-from)*i/parts, from+(to-from)*(i+1)/parts
		wg.Go(func() {
			x := expansion{search: s}
			for at := lo; at < hi; at++ {
				x.state(int32(at), grow)
			}
			out[i] = x.out
		})
	}
	wg.Wait()
	return slices.Concat(out...)
}

// expansion is one goroutine's part.
type expansion struct {
	*search
	parent int32 // of the state before
	at     *world
	buf    []byte
	todo   []action
	out    []next
}

func (x *expansion) state(at int32, grow bool) {
	w := x.world(at)
	if x.settle {
		if done, err := w.clone().settle(); err != nil {
			x.out = append(x.out, next{parent: at, bad: err, after: done})
			return
		}
	}
	if !grow {
		return
	}
	x.todo = w.actions(x.todo[:0])
	for _, a := range x.todo {
		c := w.clone()
		c.do(a)
		n := next{parent: at, action: pack(a), bad: c.check()}
		n.print, x.buf = c.fingerprint(x.buf)
		n.flags = c.flags()
		x.out = append(x.out, n)
		if n.bad != nil {
			return
		}
	}
}

// world replays the history of a state. Neighbours often share all of it but the last action.
func (x *expansion) world(at int32) *world {
	s := x.states[at]
	if s.parent < 0 {
		return x.root.clone()
	}
	if x.at == nil || x.parent != s.parent {
		x.at, x.parent = x.root.clone(), s.parent
		for _, n := range x.history(s.parent) {
			x.at.do(unpack(n))
		}
	}
	w := x.at.clone()
	w.do(unpack(s.action))
	return w
}

// history of actions to a state.
func (s *search) history(at int32) []uint32 {
	var out []uint32
	for ; s.states[at].parent >= 0; at = s.states[at].parent {
		out = append(out, s.states[at].action)
	}
	slices.Reverse(out)
	return out
}
