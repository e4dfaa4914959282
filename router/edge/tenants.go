package edge

import "sync"

// counters count the running requests of each tenant. The zero value is ready.
type counters struct {
	mu  sync.Mutex
	run map[string]int
}

// enter counts one more, unless most (0: no limit) run already. leave may be called once.
func (c *counters) enter(tenant string, most int) (leave func(), ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if most > 0 && c.run[tenant] >= most {
		return nil, false
	}
	if c.run == nil {
		c.run = map[string]int{}
	}
	c.run[tenant]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.run[tenant]--; c.run[tenant] == 0 {
			delete(c.run, tenant)
		}
	}, true
}
