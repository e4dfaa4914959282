package server

import (
	"bytes"
	"context"
	"errors"
	"io"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/kvbroker/lease"
	"leasehold.dev/kvbroker/transfer"
	"leasehold.dev/mesh/audit/event"
	"leasehold.dev/mesh/boundary"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/fault"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

// parked is the sending side of one Pull: it waits for its source lease, then for its seals. It implements
// [mover.Source]. The Broker's mu guards it.
type parked struct {
	b         *Broker
	admission *meshv1.Admission
	local     bool    // no mover reads: the pages are handed over
	reader    *reader // of a Pull by shared memory
	to        []byte  // the receiver's instance
	secret    []byte  // of the Pull
	core      *transfer.Source
	changed   chan struct{}

	ref    lease.Ref
	bound  bool
	worker string // of the lease, and the digest of the ids that it presented
	prompt []byte
	pages  []lease.PageTag // by place
	queue  []uint32        // places to send
	sent   bool            // nothing comes after the queue
	finish *brokerv1.FinishResponse
	err    error

	haul *haul // of a Pull by ucx: it reads the pages
	ok   bool  // it has ended well

	lent    bool // the reader was told where a page lies
	drained bool // and has said that it does not read any more
}

// park makes the Pull of an admission known, before its source lease exists.
func (b *Broker) park(a *meshv1.Admission, open *brokerv1.PullOpen, local bool) (*parked, error) {
	core, err := transfer.NewSource(b.own, a, open)
	if err != nil {
		return nil, err
	}
	p := &parked{b: b, admission: a, local: local, to: open.FromInstance, secret: open.Secret, core: core, changed: make(chan struct{}, 1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if why := b.table.Draining(); why != "" {
		return nil, errs.New(errs.Unavailable, "pull: nothing is granted here: %s", why)
	}
	id := lease.Admission(a.Id)
	if b.parked[id] != nil || b.undrained[id] != nil {
		return nil, errs.New(errs.Invalid, "pull: admission %s has a Pull", id)
	}
	if a.Mover == shm { // under the same lock: a reader that attaches again takes its Pulls with it
		if p.reader, err = b.readerOf(a.DecodeBroker, open.FromInstance); err != nil {
			return nil, err
		}
	}
	b.parked[id] = p
	if !local {
		b.cfg.Boundary.Expect(boundary.P2, boundary.SourceChanged, "")
	}
	return p, nil
}

// unpark ends the Pull; err is nil when the receiver has its Completion.
func (b *Broker) unpark(p *parked, err error) {
	lost := fault.At(fault.BrokerDrained) == fault.Drop
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.parked, lease.Admission(p.admission.Id))
	b.recordSource(p, err)
	switch {
	case !p.bound, lost:
	case p.mayBeRead(err):
		p.ok = err == nil
		b.undrained[lease.Admission(p.admission.Id)] = p
	case !p.local:
		b.reportLocked(lease.PullEnded{Lease: p.ref.Lease, OK: err == nil})
	case err != nil: // a local Pull has no mover: its receiver says that it is over
		b.reportLocked(lease.Revoke{Lease: p.ref.Lease, Kind: errs.KindOf(err), Reason: "the receiver failed: " + err.Error()})
	}
}

// errNoPull: the receiver has gone away, or this broker forgot its Pull in a restart. Either is a lost peer, which may be
// tried again elsewhere; that there never was one cannot be told from it.
func errNoPull() error {
	return errs.New(errs.Unavailable, "no Pull of the admission is parked here: its receiver is gone")
}

// pullOf is the parked Pull of an admission.
func (b *Broker) pullOf(a *meshv1.Admission) (*parked, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.parked[lease.Admission(a.Id)]
	if p == nil {
		return nil, errNoPull()
	}
	return p, p.err
}

// bind gives the Pull its lease, whose worker presented token ids of that digest.
func (p *parked) bind(h *held, pages []lease.PageTag, rows uint32, prompt []byte) error {
	b := p.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.parked[lease.Admission(p.admission.Id)] != p {
		return errNoPull()
	}
	if p.bound { // a step would fail the Pull of the lease that has it
		return errs.New(errs.Invalid, "pull: a second source lease")
	}
	err := p.step(transfer.Bound{Lease: h.id, Epoch: h.ref.Epoch, Pages: uint32(len(pages)), Rows: rows, PromptDigest: prompt})
	if err != nil {
		return err
	}
	if !p.local {
		if _, err := b.stepLocked(lease.PullStarted{Lease: h.id}); err != nil {
			return err
		}
	}
	p.ref, p.bound, p.pages, h.src = h.ref, true, pages, p
	p.worker, p.prompt = h.call.h.worker, prompt
	return nil
}

// step gives the core an occurrence and queues what it answers. Callers hold mu.
func (p *parked) step(o transfer.Occurrence) error {
	send, err := p.core.Step(o)
	if err != nil {
		p.err = err
	}
	p.queue = append(p.queue, send.Places...)
	p.sent = p.sent || send.Sent
	notify(p.changed)
	return err
}

// seal passes on seals that the table has taken. Callers hold mu.
func (p *parked) seal(seals []lease.PageSeal) error { return p.step(transfer.Sealed{Seals: seals}) }

// finished passes on the end of the lease's writing, once, and answers with the root. Callers hold mu.
func (p *parked) finished(seals []lease.PageSeal, rows uint32) (*brokerv1.FinishResponse, error) {
	if p.finish != nil {
		return p.finish, nil
	}
	if err := p.step(transfer.Finished{Seals: seals, Rows: rows}); err != nil {
		return nil, err
	}
	p.spoil()
	p.finish = &brokerv1.FinishResponse{Root: p.core.Root(), Pages: p.core.Pages(), Rows: rows}
	return p.finish, nil
}

// lose tells the receiver that nothing good will come any more. Callers hold mu.
func (p *parked) lose(why error) {
	if p.err == nil {
		_ = p.step(transfer.Lost{Err: why}) // the error is why
		p.err = why
	}
	notify(p.changed)
}

// Next implements [mover.Source].
func (p *parked) Next(ctx context.Context) (uint32, error) {
	for {
		place, err := p.poll()
		if !errors.Is(err, errNothingYet) {
			return place, err
		}
		select {
		case <-p.changed:
		case <-ctx.Done():
			return 0, errs.New(errs.Unavailable, "pull: the receiver is gone: %w", context.Cause(ctx))
		case <-p.b.ctx.Done():
			return 0, errs.New(errs.Unavailable, "pull: the broker stops")
		}
	}
}

var errNothingYet = errors.New("nothing to send yet")

func (p *parked) poll() (uint32, error) {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	switch {
	case p.err != nil:
		return 0, p.err
	case len(p.queue) > 0:
		place := p.queue[0]
		p.queue = p.queue[1:]
		return place, nil
	case p.sent:
		return 0, io.EOF
	}
	return 0, errNothingYet
}

// Read implements [mover.Source]. The page cannot be cleared meanwhile: the Pull is counted as a mover of its lease.
func (p *parked) Read(place, off uint32, dst []byte) error {
	p.b.mu.Lock()
	err := p.err
	p.b.mu.Unlock()
	if err != nil {
		return err
	}
	copy(dst, p.b.pool.Page(p.toRead(place))[off:])
	return nil
}

// Bytes implements [mover.Holder]: see Read.
func (p *parked) Bytes(place uint32) ([]byte, error) {
	page := p.toRead(place)
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	if p.err != nil {
		return nil, p.err
	}
	return p.b.pool.Page(page), nil
}

// Complete implements [mover.Source]. It fails when the lease was not valid throughout: its end came through lose.
func (p *parked) Complete(pages uint32, size uint64) (*brokerv1.Completion, error) {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	p.drained = true // who has acknowledged all pages reads none any more
	if p.err != nil {
		return nil, p.err
	}
	if p.local {
		size = uint64(pages) * p.b.own.PageBytes // nothing moved; the core asks for an acknowledgement of all of it
	}
	send, err := p.core.Step(transfer.Received{Pages: pages, Bytes: size})
	if err != nil {
		p.err = err
		return nil, err
	}
	return p.forge(send.Completion), nil
}

// Settle implements [mover.Source]: it digests the pages once more after the last was sealed. The receiver digests what it
// got; but a page that changed after it was sent was still read here, for the rows of every later page. A local Pull's
// receiver digests these very pages itself.
func (p *parked) Settle() error {
	if p.local || fault.Off(fault.Digest) {
		return nil
	}
	p.b.mu.Lock()
	sealed, pages := p.core.Sealed(), p.pages
	p.b.mu.Unlock()
	defer p.b.cfg.Boundary.Observed(boundary.P2, boundary.SourceChanged, "")
	for i, want := range sealed {
		if err := p.b.turns.take(p.b.ctx, p.admission.Tenant); err != nil {
			return errs.Mark(err, errs.Unavailable)
		}
		got, _, err := engine.PageSum(p.b.cfg.Layout, p.b.pool.Page(pages[i].Page), p.core.RowsOf(uint32(i)), p.b.keys)
		p.b.turns.done()
		if err != nil {
			return err
		}
		if !bytes.Equal(got[:], want) {
			p.b.metrics.incident("source")
			p.b.cfg.Boundary.Incident(boundary.P2, boundary.SourceChanged, "lease "+leaseName(p.ref.Lease))
			p.b.cfg.Audit.Append(event.SourceChanged{Lease: leaseName(p.ref.Lease), Place: uint32(i)})
			p.b.cfg.Log.Error("incident: a sealed page changed at its source", "lease", p.ref.Lease.String(), "place", i)
			return errs.New(errs.Corrupt, "pull: page %d changed after it was sealed: %x, was %x", i, got, want)
		}
	}
	return nil
}
