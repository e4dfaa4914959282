package explore

import (
	"fmt"
	"slices"

	"leasehold.dev/gpu/pool"
	"leasehold.dev/kvbroker/lease"
	"leasehold.dev/kvbroker/transfer"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/pagesum"
)

// world is one state of everything. Slices and pointers that are said to be fixed are shared by clones.
type world struct {
	plan    *Plan // fixed
	upsets  int   // left
	brokers [2]broker
	workers [2]worker
	calls   []call // by request
	pulls   []pull // by request

	log *[]string // of cores' events and effects, when somebody reads along
	bad error     // what a check found while an action was carried out
}

// content is what a page holds.
type content struct {
	by    uint8 // request + 1; 0: zero
	place uint8
	flip  bool // one bit is wrong
	tail  bool // decode has appended to it
}

// digest and rows of a page that should hold so many.
func (c content) digest(rows uint32) pagesum.Digest {
	flip := byte(0)
	if c.flip {
		flip = 1
	}
	return pagesum.Digest{1, c.by, c.place, flip, byte(rows)}
}

func (c content) rows(want uint32) uint32 {
	if c.by == 0 {
		return 0
	}
	return want
}

// broker is the shell of one broker's incarnation. Down: only id and inc count.
type broker struct {
	id, inc uint8
	up      bool
	peer    uint8 // incarnation of the other one, as of the last handshake
	table   *lease.Table
	epoch   uint64
	handles []handle
	held    []held
	parked  []*parked
	spent   []use
	dirty   []lease.Zero // slices fixed
	tags    [maxPages]pool.Tag
	mem     [maxPages]content
	late    []lease.PageTag // tags that a seeded bug has not written yet

	fresh [maxPages]uint64 // by page: generations from here on were not given to a tenant yet
}

type handle struct {
	attach  lease.Attach
	worker  int
	process uint8
	hungUp  bool
	revoked []lease.ID // not told yet
}

type use struct {
	req  uint8
	role lease.Role
}

type held struct {
	ref  lease.Ref
	req  uint8
	role lease.Role
	dest *dest
	src  bool // a Pull is bound to it
}

// dest is the receiving side of a Pull.
type dest struct {
	phase      phase
	rx         *transfer.Receiver
	expect     *transfer.Expectation // fixed
	peer       transfer.Broker
	pages      []uint32 // by place; fixed
	completion *brokerv1.Completion
	failure    errs.Kind // why the lease ended early
	failed     bool
	seals      []lease.PageSeal // fixed
	owned      []lease.PageTag  // fixed
	rows       uint32           // counted in the pages that arrived
	found      []transfer.Found // by place, digested when the page had landed; fixed
	ended      bool             // the stream has, after its Completion
	endBad     bool             // with an error
	settled    bool             // both sides have looked once more
}

type phase uint8

const (
	opening   phase = iota // no mover yet
	receiving              // a mover may write
	verifying              // the Completion is there
	settling               // owned, and looked at once more
	over                   // settled, or failed
)

// parked is the sending side of a Pull.
type parked struct {
	req    uint8
	core   *transfer.Source
	ref    lease.Ref
	bound  bool
	pages  []uint32 // fixed
	queue  []uint32
	sent   bool // nothing comes after the queue
	said   bool // Sent is under way
	looks  bool // the Completion is under way: the pages are looked at once more
	root   []byte
	failed bool
	err    errs.Kind
	count  uint32 // pages sent
}

// worker is a process with kernels.
type worker struct {
	alive    bool
	process  uint8
	attaches uint8
	attached bool
	handle   lease.Attach
	inc      uint8 // of the broker that it is attached to
	leases   []wlease
	says     []say
}

// wlease is a page table.
type wlease struct {
	req    uint8
	role   lease.Role
	ref    lease.Ref
	inc    uint8           // of the broker
	pages  []lease.PageTag // as told; fixed
	owned  bool            // of a destination: the tags are there
	next   uint32          // place to write
	flying bool            // a kernel has passed its check and has not written yet
	stub   uint8           // bits: places that were never written
	dead   bool            // its handle is
	fault  bool            // a check failed
}

// say is a call of the worker socket under way.
type say struct {
	kind    sayKind
	req     uint8
	process uint8
	ref     lease.Ref
	seals   []lease.PageSeal // fixed
	rows    uint32
	ok      bool
	failure errs.Kind
}

type sayKind uint8

const (
	saySeal sayKind = iota
	sayFinish
	sayRetire
)

// call is a request as the router sees it.
type call struct {
	decode   dstate
	prefill  pstate
	out      outcome
	process  [2]uint8               // of the workers that serve it
	admitted *decodev1.Admitted     // fixed
	dv       *meshv1.DecodeVerdict  // fixed
	pv       *meshv1.PrefillVerdict // fixed
	verified bool                   // ghost: transfer.Verify has passed
}

type (
	dstate  uint8
	pstate  uint8
	outcome uint8
)

const (
	dNone dstate = iota
	dAsked
	dAdmitted
	dVerdict
)

const (
	pNone pstate = iota
	pRuns
	pVerdict
)

const (
	open outcome = iota
	succeeded
	failed
)

// wire is a message of a Pull.
type wire struct {
	kind       wireKind
	to         uint8 // open: instance that it is meant for
	place      uint32
	content    content
	pages      uint32
	completion *brokerv1.Completion // fixed
	err        errs.Kind            // of an end that is not OK
	bad        bool
}

type wireKind uint8

const (
	wOpen wireKind = iota
	wReceived
	wAttached
	wPart
	wSent
	wCompletion
	wEnd
)

// pull is the stream between two brokers.
type pull struct {
	live     bool
	cut      bool // nothing passes any more
	toA, toB []wire
}

// newWorld has both workers attached and nothing asked.
func newWorld(p *Plan) (*world, error) {
	if err := p.prepare(); err != nil {
		return nil, err
	}
	w := &world{plan: p, upsets: p.Upsets, calls: make([]call, len(p.reqs)), pulls: make([]pull, len(p.reqs))}
	for i := range w.brokers {
		w.brokers[i].id = uint8(i)
		if err := w.boot(i); err != nil {
			return nil, err
		}
	}
	w.brokers[0].peer, w.brokers[1].peer = w.brokers[1].inc, w.brokers[0].inc
	for i := range w.workers {
		w.workers[i] = worker{alive: true, process: 1}
		if w.attach(i); !w.workers[i].attached {
			return nil, errs.New(errs.Internal, "worker %d did not attach", i)
		}
	}
	return w, w.bad
}

func (w *world) clone() *world {
	c := *w
	c.log = nil
	c.calls, c.pulls = slices.Clone(w.calls), slices.Clone(w.pulls)
	for i := range c.pulls {
		c.pulls[i].toA, c.pulls[i].toB = slices.Clone(w.pulls[i].toA), slices.Clone(w.pulls[i].toB)
	}
	for i := range c.brokers {
		c.brokers[i].own()
	}
	for i := range c.workers {
		c.workers[i].leases, c.workers[i].says = slices.Clone(w.workers[i].leases), slices.Clone(w.workers[i].says)
	}
	return &c
}

// own replaces what b shares with the broker that it was copied from.
func (b *broker) own() {
	if !b.up {
		return
	}
	b.table = b.table.Clone()
	b.handles, b.held, b.parked = slices.Clone(b.handles), slices.Clone(b.held), slices.Clone(b.parked)
	for i := range b.handles {
		b.handles[i].revoked = slices.Clone(b.handles[i].revoked)
	}
	for i, h := range b.held {
		if h.dest != nil {
			d := *h.dest
			d.rx = d.rx.Clone()
			b.held[i].dest = &d
		}
	}
	for i, p := range b.parked {
		own := *p
		own.core, own.queue = p.core.Clone(), slices.Clone(p.queue)
		b.parked[i] = &own
	}
	b.spent, b.dirty, b.late = slices.Clone(b.spent), slices.Clone(b.dirty), slices.Clone(b.late)
}

// violate notes the first thing that must not be.
func (w *world) violate(format string, args ...any) {
	if w.bad == nil {
		w.bad = fmt.Errorf(format, args...)
	}
}

func (w *world) note(format string, args ...any) {
	if w.log != nil {
		*w.log = append(*w.log, fmt.Sprintf(format, args...))
	}
}
