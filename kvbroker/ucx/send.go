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

// peer is another process, by its address.
type peer struct {
	address string
	lanes   []*endpoint
	next    int // lane of the next transfer
	users   int // transfers
}

// endpoint is one of UCX's. Transfers share it; when it breaks, all of them fail.
type endpoint struct {
	peer   *peer
	lane   int
	number int64 // the loop's: of uc_open; below 0 without
}

// Limits of what a process keeps of others.
const (
	maxPeers   = 256
	maxAddress = 4096
)

// provide makes a transfer that goes to the worker at address, with so many pages under way.
func (c *core) provide(id ID, address string, window uint32) error {
	switch {
	case address == "" || len(address) > maxAddress:
		return errs.New(errs.Invalid, "ucx: an address of %d bytes, want 1 to %d", len(address), maxAddress)
	case window == 0 || window > maxWindow:
		return errs.New(errs.Invalid, "ucx: a window of %d pages, want 1 to %d", window, maxWindow)
	}
	p := c.peers[address]
	if p == nil && len(c.peers) >= maxPeers && !c.forget() {
		return errs.New(errs.Exhausted, "ucx: %d peers with transfers, at most %d", len(c.peers), maxPeers)
	}
	t, err := c.add(id)
	if err != nil {
		return err
	}
	if p == nil {
		p = &peer{address: address, lanes: make([]*endpoint, c.lanes)}
		c.peers[address] = p
	}
	p.users++
	lane := p.next % c.lanes
	p.next++
	if p.lanes[lane] == nil {
		p.lanes[lane] = &endpoint{peer: p, lane: lane, number: -1}
		c.commands = append(c.commands, command{kind: open, endpoint: p.lanes[lane]})
	}
	t.out = &outgoing{endpoint: p.lanes[lane], window: window, given: map[uint32]struct{}{}}
	return nil
}

// forget closes the endpoints of a peer that nobody uses.
func (c *core) forget() bool {
	for address, p := range c.peers {
		if p.users > 0 {
			continue
		}
		delete(c.peers, address)
		for _, e := range p.lanes {
			if e != nil {
				c.commands = append(c.commands, command{kind: closing, endpoint: e})
			}
		}
		return true
	}
	return false
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
	case t.err != nil:
		return nil // its end is on its way
	}
	if _, twice := t.out.given[place]; twice {
		return errs.New(errs.Invalid, "ucx: send place %d of transfer %v twice", place, id)
	}
	t.out.given[place] = struct{}{}
	t.out.queue = append(t.out.queue, outPage{place: place, page: page})
	c.pump(t)
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

// broken takes the failure of an endpoint: its transfers fail, and it is closed. Its operations end on their own.
func (c *core) broken(e *endpoint, status int32) {
	if e.peer.lanes[e.lane] == e {
		e.peer.lanes[e.lane] = nil
	}
	if e.number >= 0 {
		c.commands = append(c.commands, command{kind: closing, endpoint: e})
	}
	for _, t := range c.ordered() {
		if t.out != nil && t.out.endpoint == e {
			c.fail(t, 0, errs.New(errs.Unavailable, "ucx: the peer is lost: %s", c.text(status)))
		}
	}
	c.dismiss(e.peer)
}

// dismiss forgets a peer that has neither transfers nor endpoints.
func (c *core) dismiss(p *peer) {
	if p.users == 0 && c.peers[p.address] == p && !slices.ContainsFunc(p.lanes, func(e *endpoint) bool { return e != nil }) {
		delete(c.peers, p.address)
	}
}

// ordered is the transfers from the oldest on.
func (c *core) ordered() []*transfer {
	out := make([]*transfer, 0, len(c.transfers))
	for _, t := range c.transfers {
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b *transfer) int { return int(int64(a.serial) - int64(b.serial)) })
	return out
}
