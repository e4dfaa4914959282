package ucx

import (
	"time"

	"leasehold.dev/protos/errs"
)

// core decides what a Mover does. It is pure: its methods say what has happened, and leave what is to be done in commands,
// digests and events, which its caller takes. It is not safe for concurrent use.
type core struct {
	pages     uint32 // of the pool
	pageBytes uint64
	receives  int // most that are posted at a time
	lanes     int // endpoints of a peer
	text      func(status int32) string
	now       time.Time // of what happens now

	transfers map[ID]*transfer
	bySerial  map[uint32]*transfer
	serial    uint32
	busy      map[uint32]ID // pool pages that are, or may be, written
	peers     map[string]*peer
	posted    int     // receives without an end
	backlog   []offer // taken, and not yet posted
	life      life

	commands []command
	digests  []digest
	events   []Event
	counts   Counts
}

// transfer is one direction of one transfer. It lives until it is Drained.
type transfer struct {
	id      ID
	serial  uint32
	pending int // operations and digests without an end
	ending  bool
	err     error
	in      *incoming // one of the two
	out     *outgoing
}

// commandKind is what the loop is to do.
type commandKind uint8

const (
	open    commandKind = iota + 1 // endpoint
	send                           // page to endpoint, with header
	receive                        // message of handle into page
	release                        // message of handle
	closing                        // endpoint
	probe                          // a message to oneself
)

type command struct {
	kind     commandKind
	endpoint *endpoint
	tag      uint64
	handle   uint64
	page     uint32
	header   header
}

// digest is a page to be digested: the answer goes to digested.
type digest struct {
	tag        uint64
	page, rows uint32
}

func newCore(pages uint32, pageBytes uint64, receives, lanes int, text func(int32) string) *core {
	return &core{pages: pages, pageBytes: pageBytes, receives: receives, lanes: lanes, text: text,
		transfers: map[ID]*transfer{}, bySerial: map[uint32]*transfer{}, busy: map[uint32]ID{}, peers: map[string]*peer{}}
}

// add makes a transfer. Its id must be new.
func (c *core) add(id ID) (*transfer, error) {
	if id == (ID{}) {
		return nil, errs.New(errs.Invalid, "ucx: a transfer without an id")
	}
	if c.transfers[id] != nil {
		return nil, errs.New(errs.Invalid, "ucx: transfer %v is there already", id)
	}
	for c.serial++; c.bySerial[c.serial] != nil; c.serial++ {
	}
	t := &transfer{id: id, serial: c.serial}
	c.transfers[id], c.bySerial[t.serial] = t, t
	return t, nil
}

func (t *transfer) tag(place uint32) uint64 { return uint64(t.serial)<<32 | uint64(place) }

// of is the transfer and place of a tag. A transfer with operations is there.
func (c *core) of(tag uint64) (*transfer, uint32) { return c.bySerial[uint32(tag>>32)], uint32(tag) }

// fail ends what can be ended at once. Operations that are under way are waited for.
func (c *core) fail(t *transfer, place uint32, err error) {
	if t.err != nil || t.ending {
		return
	}
	t.err = err
	c.counts.Failures++
	c.events = append(c.events, Failed{t.id, place, err})
	c.drop(t)
}

// drop lets go of what has not begun.
func (c *core) drop(t *transfer) {
	if t.in != nil {
		c.releaseBacklog(t)
	}
	if t.out != nil {
		t.out.queue = nil
	}
}

// end takes an End: nothing new begins, and Drained follows when all that is under way has ended.
func (c *core) end(id ID) error {
	t := c.transfers[id]
	if t == nil { // it never was, or was refused: there is nothing to wait for
		c.events = append(c.events, Drained{id})
		return nil
	}
	if t.ending {
		return errs.New(errs.Invalid, "ucx: transfer %v is ended twice", id)
	}
	t.ending = true
	c.drop(t)
	c.settle(t)
	return nil
}

// settle forgets a transfer whose last operation has ended.
func (c *core) settle(t *transfer) {
	if !t.ending || t.pending > 0 {
		return
	}
	if t.in != nil {
		for _, p := range t.in.pages {
			delete(c.busy, p)
		}
	}
	if t.out != nil {
		t.out.endpoint.peer.users--
		c.dismiss(t.out.endpoint.peer)
	}
	delete(c.transfers, t.id)
	delete(c.bySerial, t.serial)
	c.events = append(c.events, Drained{t.id})
}

func (c *core) ended(t *transfer) {
	t.pending--
	c.settle(t)
}

func (c *core) snapshot() Counts {
	n := c.counts
	n.Transfers = len(c.transfers)
	for _, t := range c.transfers {
		n.Operations += t.pending
	}
	return n
}
