package server

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"leasehold.dev/kvbroker/mover"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/proof"
)

// peerService is the broker's face to other brokers. That callers are brokers is the mesh's to check.
type peerService struct {
	brokerv1.UnimplementedPeerServiceServer
	b *Broker
}

// Handshake implements PeerService.
func (s *peerService) Handshake(ctx context.Context, req *brokerv1.HandshakeRequest) (*brokerv1.HandshakeResponse, error) {
	if err := s.b.checkCaller(ctx, req.GetFrom().GetName()); err != nil {
		return nil, err
	}
	if err := compare(s.b.identity(), req.From); err != nil {
		s.b.metrics.refused("handshake", err)
		s.b.cfg.Log.Warn("handshake refused", "peer", req.From.GetName(), "error", err)
		return nil, err
	}
	return &brokerv1.HandshakeResponse{From: s.b.identity()}, nil
}

// Pull implements PeerService.
func (s *peerService) Pull(stream grpc.BidiStreamingServer[brokerv1.PullRequest, brokerv1.PullResponse]) error {
	b := s.b
	if err := b.enter(); err != nil {
		return err
	}
	defer b.wg.Done()
	err := b.servePull(stream)
	if err != nil {
		b.metrics.refused("serve", err)
		b.cfg.Log.Info("pull ended badly", "error", err)
	}
	return err
}

// enter counts a call of the mesh's server among what Close waits for.
func (b *Broker) enter() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return errs.New(errs.Unavailable, "the broker stops")
	}
	b.wg.Add(1)
	return nil
}

func (b *Broker) servePull(stream grpc.BidiStreamingServer[brokerv1.PullRequest, brokerv1.PullResponse]) error {
	open, err := mover.ReceiveOpen(stream)
	if err != nil {
		return err
	}
	a, err := proof.Verify(b.cfg.AdmissionKey, open.Admission)
	if err != nil {
		return err
	}
	if err := b.checkPull(stream.Context(), a); err != nil {
		return err
	}
	p, err := b.park(a, open, false)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithDeadline(stream.Context(), deadlineOf(a))
	defer cancel()
	start := time.Now()
	switch { // the admission says how, and the receiver no more than over how many lanes
	case a.Mover == shm:
		err = mover.ServeShared(bounded{stream, ctx}, p, uint32(b.own.PageBytes))
	case a.Mover == ucx:
		err = b.serveHauled(bounded{stream, ctx}, p, open)
	case open.RawLanes || open.Lanes > 1:
		err = b.serveLanes(bounded{stream, ctx}, p, open)
	default:
		err = mover.Serve(bounded{stream, ctx}, p, uint32(b.own.PageBytes))
	}
	b.unpark(p, err)
	b.watchHaul(p)
	if err == nil {
		b.cfg.Log.Debug("pull served", "pages", len(p.pages), "took", time.Since(start))
	}
	return err
}

func (b *Broker) checkPull(ctx context.Context, a *meshv1.Admission) error {
	if err := b.checkAdmission(a); err != nil {
		return err
	}
	if !b.moves(a.Mover) || a.PrefillBroker != b.cfg.Name {
		return errs.New(errs.Denied, "pull: the admission names another prefill broker, or mover %v", a.Mover)
	}
	return b.checkCaller(ctx, a.DecodeBroker)
}

// checkCaller compares the name in a message with the one in the caller's certificate.
func (b *Broker) checkCaller(ctx context.Context, name string) error {
	if b.cfg.Caller == nil {
		return nil
	}
	if got, ok := b.cfg.Caller(ctx); !ok || got != name {
		return errs.New(errs.Denied, "the caller's certificate is for broker %q, not %q", got, name)
	}
	return nil
}

// bounded is a stream whose handler waits no longer than ctx.
type bounded struct {
	mover.ServerStream
	ctx context.Context
}

func (s bounded) Context() context.Context { return s.ctx }
