package server

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"leasehold.dev/kvbroker/mover"
	"leasehold.dev/kvbroker/transfer"
	"leasehold.dev/protos/errs"
	moverv1 "leasehold.dev/protos/gen/leasehold/mover/v1"
	"leasehold.dev/protos/pagesum"
)

// moverService is the broker's face to its mover process, on the worker socket.
type moverService struct {
	moverv1.UnimplementedMoverServiceServer
	b *Broker
}

// Drive implements MoverService.
func (s *moverService) Drive(stream grpc.BidiStreamingServer[moverv1.DriveRequest, moverv1.DriveResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	k, err := s.b.greet(first.GetHello())
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(stream.Context())
	defer stop()
	heard := make(chan error, 1)
	go func() { heard <- k.hear(stream) }() // ends with the stream, which ends with this call
	err = k.talk(ctx, s.b.ctx, stream, heard)
	if err == nil {
		err = errs.New(errs.Unavailable, "mover: the stream ended")
	}
	k.lose(err)
	s.b.cfg.Log.Warn("the mover's stream ended", "mover", k.name, "error", err)
	return err
}

// greet takes the Hello of an attached mover.
func (b *Broker) greet(h *moverv1.Hello) (*carrier, error) {
	const maxAddress = 4096
	if h == nil {
		return nil, errs.New(errs.Invalid, "mover: the first message is no Hello")
	}
	b.mu.Lock()
	k := b.carrier
	b.mu.Unlock()
	if k == nil || k.token != string(h.Attach) {
		return nil, errs.New(errs.Stale, "no such attach handle: attach again")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.driven:
		return nil, errs.New(errs.Invalid, "mover: a second stream")
	case k.instance != string(h.Instance) || h.PageBytes != b.own.PageBytes:
		return nil, errs.New(errs.Invalid, "mover: instance %x with pages of %d bytes, attached as %x, pages have %d", h.Instance, h.PageBytes,
			k.instance, b.own.PageBytes)
	case len(h.Address) == 0 || len(h.Address) > maxAddress:
		return nil, errs.New(errs.Invalid, "mover: an address of %d bytes, want 1 to %d", len(h.Address), maxAddress)
	}
	k.address, k.driven = h.Address, true
	b.cfg.Log.Info("mover ready", "mover", k.name, "transports", h.Transports)
	return k, nil
}

// talk sends what is queued, until something ends.
func (k *carrier) talk(ctx, broker context.Context, stream grpc.BidiStreamingServer[moverv1.DriveRequest, moverv1.DriveResponse], heard <-chan error) error {
	for {
		k.mu.Lock()
		out, lost := k.out, k.lost
		k.out = nil
		k.mu.Unlock()
		if lost != nil {
			return lost
		}
		for _, r := range out {
			if err := stream.Send(r); err != nil {
				return errs.FromStatus(err)
			}
		}
		select {
		case <-k.more:
		case err := <-heard:
			return err
		case <-broker.Done():
			return errs.New(errs.Unavailable, "the broker stops")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// hear takes what the mover says, until the stream ends or it says something that cannot be.
func (k *carrier) hear(stream grpc.BidiStreamingServer[moverv1.DriveRequest, moverv1.DriveResponse]) error {
	for {
		r, err := stream.Recv()
		if err != nil {
			return errs.FromStatus(err)
		}
		if err := k.said(r); err != nil {
			return err
		}
	}
}

func (k *carrier) said(r *moverv1.DriveRequest) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch e := r.Kind.(type) {
	case *moverv1.DriveRequest_Landed:
		l := e.Landed
		if len(l.GetDigest()) != pagesum.Size {
			return errs.New(errs.Invalid, "mover: a digest of %d bytes, want %d", len(l.GetDigest()), pagesum.Size)
		}
		if h := k.hauls[string(l.GetTransfer())]; h != nil && h.err == nil {
			h.landed = append(h.landed, mover.Landing{Place: l.GetPlace(), At: time.Unix(0, l.GetAtUnixNs()),
				Found: transfer.Found{Digest: pagesum.Digest(l.GetDigest()), Nonzero: l.GetNonzero()}})
			notify(h.changed)
		}
	case *moverv1.DriveRequest_Expected:
		if h := k.hauls[string(e.Expected.GetTransfer())]; h != nil {
			h.expected = true
			notify(h.changed)
		}
	case *moverv1.DriveRequest_Sent:
		if h := k.hauls[string(e.Sent.GetTransfer())]; h != nil {
			h.sent++
			notify(h.flushed)
		}
	case *moverv1.DriveRequest_Failed:
		if h := k.hauls[string(e.Failed.GetTransfer())]; h != nil {
			h.failLocked(errs.New(errs.KindOfCode(codes.Code(e.Failed.GetCode())), "%s", clip(e.Failed.GetReason())))
		}
	case *moverv1.DriveRequest_Drained:
		h := k.hauls[string(e.Drained.GetTransfer())]
		if h == nil || !h.ended {
			return errs.New(errs.Invalid, "mover: drained of a transfer that was not ended")
		}
		delete(k.hauls, string(e.Drained.GetTransfer()))
		close(h.drained)
	default:
		return errs.New(errs.Invalid, "mover: %T is out of place", r.Kind)
	}
	return nil
}
