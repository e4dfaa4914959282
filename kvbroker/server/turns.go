package server

import (
	"context"
	"sync"
)

// turns shares the threads that copy and digest pages among tenants: one page a turn, tenants one after the other, first
// come first served within one. A turn is never held across a wait for a peer, so a stuck one keeps nobody from the rest.
type turns struct {
	mu    sync.Mutex
	free  int
	queue map[string][]chan struct{} // by tenant; closed when the turn is the waiter's
	order []string                   // tenants that wait, whose turn is next first
}

func newTurns(threads int) *turns {
	return &turns{free: threads, queue: map[string][]chan struct{}{}}
}

// take waits for a turn of the tenant. The caller calls done after it, if there was no error.
func (t *turns) take(ctx context.Context, tenant string) error {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return nil
	}
	mine := make(chan struct{})
	if len(t.queue[tenant]) == 0 {
		t.order = append(t.order, tenant)
	}
	t.queue[tenant] = append(t.queue[tenant], mine)
	t.mu.Unlock()
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.remove(tenant, mine) { // it came meanwhile
		t.pass()
	}
	return context.Cause(ctx)
}

// done gives the turn to the next.
func (t *turns) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pass()
}

func (t *turns) pass() {
	if len(t.order) == 0 {
		t.free++
		return
	}
	tenant := t.order[0]
	t.order = t.order[1:]
	q := t.queue[tenant]
	close(q[0])
	if len(q) == 1 {
		delete(t.queue, tenant)
		return
	}
	t.queue[tenant] = q[1:]
	t.order = append(t.order, tenant)
}

func (t *turns) remove(tenant string, mine chan struct{}) bool {
	q := t.queue[tenant]
	for i, c := range q {
		if c != mine {
			continue
		}
		if len(q) > 1 {
			t.queue[tenant] = append(q[:i:i], q[i+1:]...)
			return true
		}
		delete(t.queue, tenant)
		for j, name := range t.order {
			if name == tenant {
				t.order = append(t.order[:j:j], t.order[j+1:]...)
				break
			}
		}
		return true
	}
	return false
}
