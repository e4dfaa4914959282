package ucx

import (
	"slices"

	"leasehold.dev/protos/errs"
)

// peer is another process, by its address.
type peer struct {
	address string
	lanes   []*endpoint
	next    int // lane of the next transfer
	users   int // transfers
}

// endpoint is one of UCX's. Transfers share it; when it breaks, all of them fail. The other end has one of UCX's own making,
// which is enough for the receives there to end when this process dies.
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

// meet is the peer at an address.
func (c *core) meet(address string) (*peer, error) {
	if address == "" || len(address) > maxAddress {
		return nil, errs.New(errs.Invalid, "ucx: an address of %d bytes, want 1 to %d", len(address), maxAddress)
	}
	p := c.peers[address]
	if p == nil {
		if len(c.peers) >= maxPeers && !c.forget() {
			return nil, errs.New(errs.Exhausted, "ucx: %d peers with transfers, at most %d", len(c.peers), maxPeers)
		}
		p = &peer{address: address, lanes: make([]*endpoint, c.lanes)}
		c.peers[address] = p
	}
	return p, nil
}

// lane is the endpoint of a peer for the next transfer: each in turn.
func (c *core) lane(p *peer) *endpoint {
	i := p.next % c.lanes
	p.next++
	if p.lanes[i] == nil {
		p.lanes[i] = &endpoint{peer: p, lane: i, number: -1}
		c.commands = append(c.commands, command{kind: open, endpoint: p.lanes[i]})
	}
	return p.lanes[i]
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

// broken takes the failure of an endpoint: its transfers fail, and it is closed. Operations end on their own.
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
