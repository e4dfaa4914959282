package server

import (
	"context"

	"google.golang.org/grpc"

	"leasehold.dev/kvbroker/mover"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

// laneToken names a Pull that has lanes. Only its receiver knows it.
type laneToken [mover.TokenSize]byte

// laned is a parked Pull with its lanes.
type laned struct {
	lanes *mover.Lanes
	p     *parked
}

// serveLanes serves a parked Pull over as many lanes as open asks for. When it returns, none of them reads pages any more.
func (b *Broker) serveLanes(stream mover.ServerStream, p *parked, open *brokerv1.PullOpen) error {
	n := open.Lanes
	if _, _, pages := p.core.Want(); p.admission.Mover != meshv1.Mover_MOVER_GRPC || n > pages {
		return errs.New(errs.Invalid, "pull: %d lanes for %d pages by mover %v", n, pages, p.admission.Mover)
	}
	var l *mover.Lanes
	var err error
	switch {
	case !open.RawLanes:
		l, err = mover.NewLanes(n, p, uint32(b.own.PageBytes))
	case b.cfg.Data == nil:
		err = errs.New(errs.Unavailable, "pull: this broker serves no raw lanes")
	default:
		l, err = mover.NewRawLanes(n, p, uint32(b.own.PageBytes))
	}
	if err != nil {
		return err
	}
	token := laneToken(l.Token())
	b.mu.Lock()
	b.lanes[token] = laned{l, p}
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.lanes, token)
	}()
	return l.ServePull(stream)
}

// Lane implements PeerService.
func (s *peerService) Lane(req *brokerv1.LaneRequest, stream grpc.ServerStreamingServer[brokerv1.LaneResponse]) error {
	b := s.b
	if err := b.enter(); err != nil {
		return err
	}
	defer b.wg.Done()
	err := b.serveLane(stream, req)
	if err != nil {
		b.metrics.refused("lane", err)
		b.cfg.Log.Info("lane ended badly", "lane", req.Lane, "error", err)
	}
	return err
}

func (b *Broker) serveLane(stream grpc.ServerStreamingServer[brokerv1.LaneResponse], req *brokerv1.LaneRequest) error {
	if err := mover.CheckSubtype(stream.Context()); err != nil {
		return err
	}
	if len(req.LaneToken) != mover.TokenSize {
		return errs.New(errs.Invalid, "lane: token of %d bytes, want %d", len(req.LaneToken), mover.TokenSize)
	}
	l, err := b.lanesOf(laneToken(req.LaneToken))
	if err != nil {
		return err
	}
	if err := b.checkCaller(stream.Context(), l.p.admission.DecodeBroker); err != nil {
		return err
	}
	ctx, cancel := context.WithDeadline(stream.Context(), deadlineOf(l.p.admission))
	defer cancel()
	return l.lanes.Serve(bounded{stream, ctx}, req.Lane)
}
