package ucx

import (
	"testing"

	"pgregory.net/rapid"

	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/pagesum"
)

// world is what is true around a core, kept by a model of its own.
type world struct {
	*rapid.T
	c        *core
	handles  map[uint64]bool   // offers that the core has neither taken nor given back
	next     uint64            // handle
	receives map[uint64]uint32 // posted, by tag: the page that is written
	sends    map[uint64]bool
	digests  map[uint64]bool
	ends     map[ID]int // Ends without Drained
	failed   map[ID]bool
}

// take does what the core says, and holds it to its promises.
func (w *world) take() {
	for _, x := range w.c.commands {
		switch x.kind {
		case receive, release:
			if !w.handles[x.handle] {
				w.Fatalf("handle %d is used twice, or was never there", x.handle)
			}
			delete(w.handles, x.handle)
			if x.kind == release {
				continue
			}
			for tag, page := range w.receives {
				if page == x.page || tag == x.tag {
					w.Fatalf("page %d is written by two receives", x.page)
				}
			}
			w.receives[x.tag] = x.page
		case send:
			if w.sends[x.tag] {
				w.Fatalf("place %d is sent twice", uint32(x.tag))
			}
			w.sends[x.tag] = true
		case open:
			x.endpoint.number = 0
		}
	}
	for _, d := range w.c.digests {
		w.digests[d.tag] = true
	}
	for _, e := range w.c.events {
		switch e := e.(type) {
		case Drained:
			if w.ends[e.ID]--; w.ends[e.ID] < 0 {
				w.Fatalf("drained without an end")
			}
			if t := w.c.transfers[e.ID]; t != nil {
				w.Fatalf("drained, and still there with %d operations", t.pending)
			}
			delete(w.failed, e.ID)
		case Failed:
			if w.failed[e.ID] {
				w.Fatalf("failed twice")
			}
			w.failed[e.ID] = true
		}
	}
	w.c.commands, w.c.digests, w.c.events = nil, nil, nil
	if len(w.receives) > w.c.receives || len(w.receives) != w.c.posted {
		w.Fatalf("%d receives are posted, the core counts %d, at most %d", len(w.receives), w.c.posted, w.c.receives)
	}
}

// one of the keys of m, smallest first, so that a seed gives the same history.
func one[V any](w *world, m map[uint64]V) (uint64, bool) {
	keys := make([]uint64, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return 0, false
	}
	for i := range keys {
		for j := i + 1; j < len(keys); j++ {
			if keys[j] < keys[i] {
				keys[i], keys[j] = keys[j], keys[i]
			}
		}
	}
	return keys[rapid.IntRange(0, len(keys)-1).Draw(w.T, "which")], true
}

func (w *world) step() {
	id := testID(byte(rapid.IntRange(1, 3).Draw(w.T, "id")))
	place := rapid.Uint32Range(0, 5).Draw(w.T, "place")
	status := rapid.SampledFrom([]int32{0, 0, 0, -25}).Draw(w.T, "status")
	switch rapid.IntRange(0, 8).Draw(w.T, "what") {
	case 0:
		first := rapid.Uint32Range(0, 6).Draw(w.T, "first")
		e := expectation(0, first, first+1, first+2, first+3)
		e.ID = id
		_ = w.c.expect(e)
	case 1:
		_ = w.c.provide(id, "peer", 2)
	case 2:
		_ = w.c.send(id, place, place)
	case 3, 4:
		w.next++
		length := rapid.SampledFrom([]uint64{testPage, testPage, testPage, 7}).Draw(w.T, "length")
		if t := w.c.transfers[id]; t != nil && t.in != nil && rapid.IntRange(0, 9).Draw(w.T, "wrong") > 0 {
			place, length = t.in.lowest, testPage // what should come, or nothing would ever get far
		}
		w.handles[w.next] = true
		w.c.message(header{id: id, place: place, length: length}.bytes(), length, w.next, true)
	case 5:
		if tag, ok := one(w, w.receives); ok {
			delete(w.receives, tag)
			w.c.received(tag, status)
		}
	case 6:
		if tag, ok := one(w, w.sends); ok {
			delete(w.sends, tag)
			w.c.sent(tag, status)
		}
	case 7:
		if tag, ok := one(w, w.digests); ok {
			delete(w.digests, tag)
			var err error
			if status != 0 {
				err = errs.New(errs.Internal, "no")
			}
			w.c.digested(tag, pagesum.Digest{}, 64, err)
		}
	case 8:
		if w.c.end(id) == nil {
			w.ends[id]++
		}
	}
	w.take()
}

// TestWhateverHappens: no page is written by two, no offer is forgotten or answered twice, and when all operations have ended
// every End has its Drained.
func TestWhateverHappens(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := &world{T: r, c: testCore(), handles: map[uint64]bool{}, receives: map[uint64]uint32{}, sends: map[uint64]bool{}, digests: map[uint64]bool{},
			ends: map[ID]int{}, failed: map[ID]bool{}}
		for range rapid.IntRange(1, 150).Draw(r, "steps") {
			w.step()
		}
		for i := range byte(3) {
			if w.c.end(testID(i+1)) == nil {
				w.ends[testID(i+1)]++
			}
		}
		w.take()
		for len(w.receives)+len(w.sends)+len(w.digests) > 0 {
			if tag, ok := one(w, w.receives); ok {
				delete(w.receives, tag)
				w.c.received(tag, 0)
			}
			if tag, ok := one(w, w.sends); ok {
				delete(w.sends, tag)
				w.c.sent(tag, 0)
			}
			if tag, ok := one(w, w.digests); ok {
				delete(w.digests, tag)
				w.c.digested(tag, pagesum.Digest{}, 64, nil)
			}
			w.take()
		}
		for id, n := range w.ends {
			if n != 0 {
				r.Fatalf("%d ends of %v were not answered", n, id)
			}
		}
		if len(w.handles) != 0 || len(w.c.transfers) != 0 || len(w.c.busy) != 0 || len(w.c.backlog) != 0 {
			r.Fatalf("left over: %d offers, %d transfers, %d pages, %d in the backlog", len(w.handles), len(w.c.transfers), len(w.c.busy), len(w.c.backlog))
		}
	})
}
