package server

import (
	"context"

	"google.golang.org/grpc"

	"leasehold.dev/kvbroker/lease"
	"leasehold.dev/kvbroker/mover"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	moverv1 "leasehold.dev/protos/gen/leasehold/mover/v1"
	"leasehold.dev/protos/proof"
)

// openHauled opens a Pull whose pages come through the mover process, which expects them before the peer hears of it.
func (d *destination) openHauled(conn grpc.ClientConnInterface, open *brokerv1.PullOpen) (pull, error) {
	id := proof.NewID()
	h, err := d.b.haulBy(id, func([]byte) *moverv1.DriveResponse {
		e := &moverv1.Expect{Transfer: id, Window: mover.Window(d.b.own.PageBytes)}
		for i := range d.expect.Pages {
			e.Pages, e.Rows = append(e.Pages, d.pages[i]), append(e.Rows, d.expect.RowsOf(i))
		}
		return &moverv1.DriveResponse{Kind: &moverv1.DriveResponse_Expect{Expect: e}}
	})
	if err != nil {
		return nil, err
	}
	open.Transfer, open.Address = id, h.address
	if err = h.await(d.ctx); err == nil {
		var p *mover.Hauled
		if p, err = mover.OpenHauled(d.ctx, conn, open, h, d.b.own.PageBytes); err == nil {
			return p, nil
		}
	}
	// The peer may know the transfer, so pages may come: the lease may not go before the mover process says that none will.
	h.End()
	select {
	case <-h.Drained():
	case <-d.ctx.Done():
		d.b.lingers(d.id, h)
	}
	return nil, err
}

// lingers counts a transfer among what writes to a lease until it is drained.
func (b *Broker) lingers(id lease.ID, h *haul) {
	if err := b.step(lease.PullStarted{Lease: id}); err != nil {
		b.cfg.Log.Error("the table refused a report", "event", "lease.PullStarted", "error", err)
	}
	b.wg.Go(func() {
		select {
		case <-h.Drained():
			b.report(lease.PullEnded{Lease: id})
		case <-b.ctx.Done():
		}
	})
}

// serveHauled answers a Pull by ucx.
func (b *Broker) serveHauled(stream bounded, p *parked, open *brokerv1.PullOpen) error {
	h, err := b.haulBy(open.Transfer, func([]byte) *moverv1.DriveResponse {
		return &moverv1.DriveResponse{Kind: &moverv1.DriveResponse_Provide{Provide: &moverv1.Provide{Transfer: open.Transfer,
			Address: open.Address, Window: mover.Window(b.own.PageBytes)}}}
	})
	if err != nil {
		return err
	}
	b.mu.Lock()
	p.haul = h
	b.mu.Unlock()
	ctx, cancel := context.WithCancelCause(stream.ctx)
	done := make(chan struct{})
	go func() { // a transfer that fails ends the wait for the next page
		defer close(done)
		_, err := h.Landed(ctx)
		cancel(err)
	}()
	err = mover.ServeHauled(bounded{stream.ServerStream, ctx}, p, h, uint32(b.own.PageBytes))
	if why := context.Cause(ctx); err != nil && why != nil && errs.KindOf(why) == errs.Corrupt {
		err = why
	}
	cancel(nil)
	<-done
	return err
}

// watchHaul ends a Pull by ucx when the mover process has let go of its pages.
func (b *Broker) watchHaul(p *parked) {
	if p.haul == nil {
		return
	}
	b.wg.Go(func() {
		select {
		case <-p.haul.Drained():
		case <-b.ctx.Done():
			return
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if id := lease.Admission(p.admission.Id); b.undrained[id] == p {
			b.drained(id, p)
		}
	})
}
