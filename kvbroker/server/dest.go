package server

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/kvbroker/lease"
	"leasehold.dev/kvbroker/mover"
	"leasehold.dev/kvbroker/transfer"
	"leasehold.dev/mesh/audit/event"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/fault"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/proof"
)

// lingering is a pull that may write to its destination for a time after Receive has failed.
type lingering interface {
	// Drained is closed when nothing writes any more.
	Drained() <-chan struct{}
}

// pull is an attached Pull at its receiving side, by any mover.
type pull interface {
	// Receive brings the pages and the Completion; when it returns, nothing writes to dst any more, or the pull is lingering
	// and it has failed.
	Receive(dst mover.Destination, rx *transfer.Receiver) (*brokerv1.Completion, mover.Moved, error)
	// End waits for the sender's second look at its pages, after a Receive without error.
	End() error
	// Close ends the Pull; before its Completion the other side hears of a cancel at once.
	Close()
}

// destination is the receiving side of one admission. It implements [mover.Destination].
type destination struct {
	b      *Broker
	h      *held
	id     lease.ID
	ticket *meshv1.Admission
	mover  meshv1.Mover
	expect *transfer.Expectation
	peer   transfer.Broker
	secret []byte
	local  *parked // of a local Pull
	pages  []uint32

	ctx    context.Context
	cancel context.CancelCauseFunc
	looks  sync.WaitGroup
	found  []*transfer.Found // by place, what arrived; written once each by Copy or by a look, read after looks

	done      chan struct{}
	owned     *brokerv1.AwaitOwnedResponse // after done
	err       error                        // after done
	begun     chan struct{}                // closed by begin: the worker has begun to compute
	begin     func()
	settled   chan struct{}
	unsettled error // after settled: nil when both sides have looked once more

	failure error            // why the lease ended before it was owned; guarded by the Broker's mu
	seals   []lease.PageSeal // of whole pages that came and were verified; guarded by the Broker's mu
}

// fail ends the Pull. Callers hold mu.
func (d *destination) fail(why error) {
	if d.failure == nil {
		d.failure = why
	}
	d.cancel(why)
}

// Page implements [mover.Destination].
func (d *destination) Page(place uint32) ([]byte, error) {
	if uint64(place) >= uint64(len(d.pages)) {
		return nil, errs.New(errs.Corrupt, "pull: page %d of %d", place, len(d.pages))
	}
	return d.b.pool.Page(d.pages[place]), nil
}

// Landed implements [mover.Destination]. The page is digested beside what still comes.
func (d *destination) Landed(place uint32) error {
	if err := d.arrived(place); err != nil {
		return err
	}
	d.looks.Go(func() {
		f, err := d.look(d.pages[place], place)
		if err == nil {
			d.found[place] = &f
		}
	})
	return nil
}

// Digested implements [mover.Destination].
func (d *destination) Digested(place uint32, found transfer.Found) error {
	d.found[place] = &found
	return d.arrived(place)
}

func (d *destination) arrived(place uint32) error {
	if d.b.lostArrival(d.pages[place]) {
		return nil
	}
	return d.b.step(lease.Arrived{Lease: d.id, Place: place})
}

// Copy implements [mover.Destination]. What is digested is what is stored.
func (d *destination) Copy(place uint32, from []byte) error {
	to, err := d.Page(place)
	if err != nil {
		return err
	}
	if err := d.b.turns.take(d.ctx, d.ticket.Tenant); err != nil {
		return errs.Mark(err, errs.Unavailable)
	}
	sum, nonzero, err := engine.CopyPage(d.b.cfg.Layout, to, from, d.expect.RowsOf(place), d.b.keys)
	d.b.turns.done()
	if err != nil {
		return err
	}
	d.found[place] = &transfer.Found{Digest: sum, Nonzero: nonzero}
	return d.arrived(place)
}

// look digests what lies in a page now.
func (d *destination) look(page, place uint32) (transfer.Found, error) {
	if err := d.b.turns.take(d.ctx, d.ticket.Tenant); err != nil {
		return transfer.Found{}, errs.Mark(err, errs.Unavailable)
	}
	defer d.b.turns.done()
	sum, nonzero, err := engine.PageSum(d.b.cfg.Layout, d.b.pool.Page(page), d.expect.RowsOf(place), d.b.keys)
	return transfer.Found{Digest: sum, Nonzero: nonzero}, err
}

// run takes the pages, checks them, makes them the worker's, and looks at them once more. It owns p.
func (d *destination) run(p pull) {
	defer d.cancel(nil)
	owned, err := d.receive(p)
	d.looks.Wait()
	if d.local != nil {
		d.b.unpark(d.local, err)
	}
	if err != nil {
		err = d.cause(err)
	}
	d.owned, d.err = owned, err
	close(d.done)
	if err == nil {
		err = d.settle(p)
	}
	p.Close()
	d.end(err)
	d.unsettled = err
	close(d.settled)
}

// cause is the lease's own end, of which the broken Pull is the effect.
func (d *destination) cause(err error) error {
	d.b.mu.Lock()
	defer d.b.mu.Unlock()
	if d.failure != nil {
		return d.failure
	}
	return err
}

// end puts on record how the transfer ended.
func (d *destination) end(err error) {
	d.b.mu.Lock()
	defer d.b.mu.Unlock()
	if err == nil {
		d.b.recordDestination(d, d.owned, nil)
		return
	}
	d.b.recordDestination(d, nil, err)
	d.b.metrics.refused("pull", err)
	if errs.KindOf(err) == errs.Corrupt {
		d.b.metrics.incident("transfer")
		d.b.cfg.Audit.Append(event.TransferFailed{Lease: leaseName(d.id), Error: errs.KindOf(err).String(), Reason: event.Reason(err)})
		d.b.cfg.Log.Error("incident: a transfer failed its check", "lease", d.id.String(), "error", err)
	}
}

func (d *destination) receive(p pull) (*brokerv1.AwaitOwnedResponse, error) {
	c, moved, err := p.Receive(d, transfer.NewReceiver(d.expect))
	if err != nil {
		p.Close()
	}
	d.b.metrics.pulled(moved.Bytes)
	if err != nil {
		d.giveUp(err)
	}
	if err == nil && fault.Off(fault.Counts) {
		d.assumeArrived()
	}
	if d.local == nil && fault.At(fault.BrokerDrained) != fault.Drop {
		d.pullEnded(p, err)
	}
	if err != nil {
		return nil, err
	}
	owned, err := d.take(c, moved)
	if err != nil {
		d.giveUp(err)
	}
	return owned, err
}

// pullEnded says that nothing writes to the pages any more, once that is so. Nothing but the mover's own word, or its end,
// brings it about: without them they stay in quarantine.
func (d *destination) pullEnded(p pull, err error) {
	l, lingers := p.(lingering)
	if err == nil || !lingers {
		d.b.report(lease.PullEnded{Lease: d.id, OK: err == nil})
		return
	}
	d.b.wg.Go(func() {
		select {
		case <-l.Drained():
			d.b.report(lease.PullEnded{Lease: d.id})
		case <-d.b.ctx.Done():
		}
	})
}

func (d *destination) giveUp(err error) {
	d.b.report(lease.TransferFailed{Lease: d.id, Kind: errs.KindOf(err), Reason: err.Error()})
}

// take checks what has arrived, at rest, and grants it.
func (d *destination) take(c *brokerv1.Completion, moved mover.Moved) (*brokerv1.AwaitOwnedResponse, error) {
	fault.At(fault.BrokerVerify)
	start := time.Now()
	// The epoch is that of the source lease's attach, which nobody on this side knows before; it is bound by the MAC, and
	// the router compares it with the one in P's verdict.
	d.peer.Epoch = c.GetEpoch()
	if d.local != nil {
		d.peer.Epoch = d.local.ref.Epoch
		if err := d.b.step(lease.Handover{From: d.local.ref.Lease, To: d.id}); err != nil {
			return nil, err
		}
	}
	if err := d.b.step(lease.Verify{Lease: d.id}); err != nil {
		return nil, err
	}
	found, rows, err := d.find()
	if err != nil {
		return nil, err
	}
	if err := transfer.Verify(d.expect, d.peer, d.secret, c, found); err != nil {
		return nil, err
	}
	pages, err := d.grant(found)
	if err != nil {
		return nil, err
	}
	c = proto.Clone(c).(*brokerv1.Completion)
	c.Mac, c.Root = nil, proof.Root(d.secret, digestsOf(found)) // of what was found here, for the router to compare
	if fault.Off(fault.Counts) {
		rows = d.expect.Rows // what was asked for, since nobody looks whether it is there
	}
	return &brokerv1.AwaitOwnedResponse{Completion: c, Pages: pages, ExpectedPages: d.expect.Pages, Rows: rows,
		BytesMoved: moved.Bytes, TransferUs: micros(moved.Took), VerifyUs: micros(time.Since(start))}, nil
}

func digestsOf(found []transfer.Found) [][]byte {
	out := make([][]byte, len(found))
	for i := range found {
		out[i] = found[i].Digest[:]
	}
	return out
}

// find is what the pages held when they arrived. Those of a handover, and those whose arrival nobody noticed, are digested now.
func (d *destination) find() (found []transfer.Found, rows uint32, err error) {
	d.looks.Wait()
	pages, err := d.moved()
	if err != nil {
		return nil, 0, err
	}
	for place, page := range pages {
		if d.found[place] == nil {
			f, err := d.look(page.Page, uint32(place))
			if err != nil {
				return nil, 0, err
			}
			d.found[place] = &f
		}
		found = append(found, *d.found[place])
		rows += d.found[place].Nonzero
	}
	return found, rows, nil
}

// moved are the lease's pages that came from prefill.
func (d *destination) moved() ([]lease.PageTag, error) {
	d.b.mu.Lock()
	defer d.b.mu.Unlock()
	pages := d.b.table.Pages(d.id)
	if uint64(len(pages)) < uint64(d.expect.Pages) {
		return nil, errs.New(errs.Unavailable, "verify: the lease has ended")
	}
	return pages[:d.expect.Pages], nil
}

// settle is the second look: the pages are digested at rest once more, while the worker's first step runs, and the sender
// says the same of its own. A difference takes the lease back.
func (d *destination) settle(p pull) error {
	if d.local != nil { // looked at for the first time just now
		return nil
	}
	err := d.lookAgain(p)
	if err == nil {
		return nil
	}
	d.b.mu.Lock()
	defer d.b.mu.Unlock()
	if d.failure != nil {
		return d.failure
	}
	d.b.reportLocked(lease.Revoke{Lease: d.id, Kind: errs.KindOf(err), Reason: err.Error()})
	return err
}

// lookWithin is how long the second look waits for the worker to begin, so as not to take its cores: no longer, since the
// sender keeps its pages until it has looked too.
const lookWithin = 20 * time.Millisecond

func (d *destination) lookAgain(p pull) error {
	late := time.NewTimer(lookWithin)
	defer late.Stop()
	select {
	case <-d.begun:
	case <-late.C:
	case <-d.ctx.Done():
		return errs.Mark(context.Cause(d.ctx), errs.Unavailable)
	}
	ended := make(chan error, 1)
	go func() { ended <- p.End() }()
	err := d.unchanged()
	if e := <-ended; err == nil {
		err = e
	}
	return err
}

// unchanged compares the pages at rest with what arrived.
func (d *destination) unchanged() error {
	if fault.Off(fault.Digest) {
		return nil
	}
	pages, err := d.moved()
	if err != nil {
		return err
	}
	for place, page := range pages {
		f, err := d.look(page.Page, uint32(place))
		if err != nil {
			return err
		}
		if f == *d.found[place] {
			continue
		}
		if _, err := d.moved(); err != nil { // its end let others have the page
			return err
		}
		return errs.New(errs.Corrupt, "settle: page %d has digest %s at rest, arrived with %s", place, f.Digest, d.found[place].Digest)
	}
	return nil
}

// grant makes the pages the worker's. The digests of whole ones are kept for the check at their end.
func (d *destination) grant(found []transfer.Found) ([]*brokerv1.PageGrant, error) {
	d.b.mu.Lock()
	defer d.b.mu.Unlock()
	effects, err := d.b.stepLocked(lease.Verified{Lease: d.id})
	if err != nil {
		return nil, err
	}
	for i, f := range found {
		if n := d.expect.RowsOf(uint32(i)); n == pageTokens && d.local == nil { // the table has those of a handover
			d.seals = append(d.seals, lease.PageSeal{Index: uint32(i), Rows: n, Digest: f.Digest})
		}
	}
	g, err := grantedIn(effects)
	return grants(g.Pages), err
}

func micros(d time.Duration) uint64 { return uint64(max(d, 0).Microseconds()) }
