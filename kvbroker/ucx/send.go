package ucx

import (
	"slices"

	"leasehold.dev/protos/errs"
)

// outgoing is what is known of a transfer that goes out.
type outgoing struct {
	endpoint *endpoint
	window   uint32
	queue    []outPage // to be sent
	flight   []outPage // under way, from the first that has not ended on
	given    map[uint32]struct{}
}

type outPage struct {
	place, page uint32
	done        bool
}

// provide makes a transfer that goes to the worker at address, with so many pages under way.
func (c *core) provide(id ID, address string, window uint32) error {
	if window == 0 || window > maxWindow {
		return errs.New(errs.Invalid, "ucx: a window of %d pages, want 1 to %d", window, maxWindow)
	}
	p, err := c.meet(address)
	if err != nil {
		return err
	}
	t, err := c.add(id)
	if err != nil {
		c.dismiss(p)
		return err
	}
	p.users++
	t.out = &outgoing{endpoint: c.lane(p), window: window, given: map[uint32]struct{}{}}
	return nil
}

// send gives a page of a transfer. Pages go out in the order in which they are given.
func (c *core) send(id ID, place, page uint32) error {
	t := c.transfers[id]
	switch {
	case t == nil || t.out == nil:
		return errs.New(errs.NotFound, "ucx: transfer %v does not go out from here", id)
	case page >= c.pages:
		return errs.New(errs.Invalid, "ucx: send page %d of %d", page, c.pages)
	case t.ending:
		return errs.New(errs.Invalid, "ucx: send after the end of transfer %v", id)
	}
	if _, twice := t.out.given[place]; twice {
		return errs.New(errs.Invalid, "ucx: send place %d of transfer %v twice", place, id)
	}
	t.out.given[place] = struct{}{}
	if t.err == nil { // else who gives it will hear of that
		t.out.queue = append(t.out.queue, outPage{place: place, page: page})
		c.pump(t)
	}
	return nil
}

// pump sends what the window has room for.
func (c *core) pump(t *transfer) {
	out := t.out
	for len(out.queue) > 0 && uint32(len(out.flight)) < out.window {
		p := out.queue[0]
		out.queue = out.queue[1:]
		out.flight = append(out.flight, p)
		t.pending++
		c.commands = append(c.commands, command{kind: send, endpoint: out.endpoint, tag: t.tag(p.place), page: p.page,
			header: header{id: t.id, place: p.place, length: c.pageBytes}})
	}
}

// sent takes the end of a send.
func (c *core) sent(tag uint64, status int32) {
	t, place := c.of(tag)
	if t == nil { // of an offer that was made by a fault
		return
	}
	out := t.out
	for i := range out.flight {
		if out.flight[i].place == place {
			out.flight[i].done = true
		}
	}
	n := slices.IndexFunc(out.flight, func(p outPage) bool { return !p.done })
	if n < 0 {
		n = len(out.flight)
	}
	out.flight = slices.Delete(out.flight, 0, n)
	switch {
	case status != 0:
		c.fail(t, place, errs.New(errs.Unavailable, "ucx: page %d was not taken: %s", place, c.text(status)))
	case t.err == nil && !t.ending:
		c.counts.PagesOut++
		c.events = append(c.events, Sent{t.id, place})
		c.pump(t)
	}
	c.ended(t)
}
