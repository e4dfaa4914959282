package record

import (
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
)

// Size is the number of requests that a Ring keeps.
const Size = 1000

// Ring keeps the last Size requests. It is safe for concurrent use.
type Ring struct {
	mu   sync.Mutex
	last []*Request // oldest at next when full
	next int
}

// Entry is a request in a Ring.
type Entry struct {
	ring *Ring
	r    *Request
}

// Begin adds r, which belongs to the ring from now on.
func (g *Ring) Begin(r *Request) *Entry {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.last) < Size {
		g.last = append(g.last, r)
	} else {
		g.last[g.next] = r
		g.next = (g.next + 1) % Size
	}
	return &Entry{g, r}
}

// Update changes the request under the ring's lock.
func (e *Entry) Update(f func(*Request)) {
	e.ring.mu.Lock()
	defer e.ring.mu.Unlock()
	f(e.r)
}

// Copy is the request as it is now.
func (e *Entry) Copy() *Request {
	e.ring.mu.Lock()
	defer e.ring.mu.Unlock()
	return clone(e.r)
}

func clone(r *Request) *Request {
	c := *r
	c.Choices = make([]*Choice, len(r.Choices))
	for i, ch := range r.Choices {
		one := *ch
		c.Choices[i] = &one
	}
	return &c
}

// Last is up to n requests, newest first.
func (g *Ring) Last(n int) []*Request {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := []*Request{}
	for i := 0; i < len(g.last) && i < n; i++ {
		at := (g.next - 1 - i + 2*len(g.last)) % len(g.last)
		out = append(out, clone(g.last[at]))
	}
	return out
}

// ServeHTTP answers {"requests": [...]}, newest first; ?id= asks for one, ?limit= for the last few. It is for the admin
// port only.
func (g *Ring) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	limit := Size
	if v, err := strconv.Atoi(r.URL.Query().Get("limit")); err == nil && v >= 0 {
		limit = v
	}
	out := g.Last(limit)
	if id := r.URL.Query().Get("id"); id != "" {
		out = []*Request{}
		for _, one := range g.Last(Size) {
			if one.ID == id {
				out = append(out, one)
			}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"requests": out}) // a client that is gone is no error of ours
}
