package server

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"leasehold.dev/kvbroker/lease"
	"leasehold.dev/mesh/audit/event"
	"leasehold.dev/mesh/boundary"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/fault"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	"leasehold.dev/protos/pagesum"
	"leasehold.dev/protos/proof"
)

const (
	pageTokens = pagesum.PageTokens
	// maxReason bounds a worker's words that are passed on.
	maxReason = 512
)

// workerService is the broker's face on the worker socket.
type workerService struct {
	brokerv1.UnimplementedWorkerServiceServer
	b *Broker
}

// Reserve implements WorkerService.
func (s *workerService) Reserve(ctx context.Context, req *brokerv1.ReserveRequest) (*brokerv1.ReserveResponse, error) {
	h, err := s.b.handleOf(req.Attach)
	if err != nil {
		return nil, err
	}
	resp, err := s.b.once(ctx, h, req, func(c *call) (*brokerv1.ReserveResponse, error) { return s.b.reserve(ctx, c, req) })
	if err != nil {
		s.b.metrics.refused("reserve", err)
	}
	return resp, err
}

// Seal implements WorkerService.
func (s *workerService) Seal(_ context.Context, req *brokerv1.SealRequest) (*brokerv1.SealResponse, error) {
	ref, err := s.b.refOf(req.Attach, req.Lease, req.Epoch)
	if err != nil {
		return nil, err
	}
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if len(req.Pages) > 0 { // without, it does nothing: it is how a worker asks whether epochs are looked at
		s.b.noteEpoch(ref)
	}
	return &brokerv1.SealResponse{}, s.b.distrust(ref, s.b.seal(ref, req.Pages))
}

// seal takes seals of a lease. Callers hold mu.
func (b *Broker) seal(ref lease.Ref, pages []*brokerv1.PageSeal) error {
	seals, err := sealsOf(pages)
	if err != nil {
		return err
	}
	if _, err := b.stepLocked(lease.Seal{Ref: ref, Seals: seals}); err != nil {
		return err
	}
	if h := b.held[ref.Lease]; h != nil && h.src != nil {
		return h.src.seal(seals)
	}
	return nil
}

// distrust takes a lease back whose worker reports what cannot be: a wrong or missing number or digest. Its receiver
// hears that a check failed, which is never tried again, whatever the worker says next. Callers hold mu.
func (b *Broker) distrust(ref lease.Ref, err error) error {
	if k := errs.KindOf(err); err != nil && (k == errs.Invalid || k == errs.Corrupt) {
		b.reportLocked(lease.Revoke{Lease: ref.Lease, Kind: errs.Corrupt, Reason: err.Error()})
	}
	return err
}

// Finish implements WorkerService.
func (s *workerService) Finish(_ context.Context, req *brokerv1.FinishRequest) (*brokerv1.FinishResponse, error) {
	ref, err := s.b.refOf(req.Attach, req.Lease, req.Epoch)
	if err != nil {
		return nil, err
	}
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	s.b.noteEpoch(ref)
	resp, err := s.b.finish(ref, req)
	return resp, s.b.distrust(ref, err)
}

// finish ends a lease's writing. Callers hold mu.
func (b *Broker) finish(ref lease.Ref, req *brokerv1.FinishRequest) (*brokerv1.FinishResponse, error) {
	seals, err := sealsOf(req.Pages)
	if err != nil {
		return nil, err
	}
	if _, err := b.stepLocked(lease.Finish{Ref: ref, Seals: seals, Rows: req.Rows}); err != nil {
		return nil, err
	}
	h := b.held[ref.Lease]
	if h == nil || h.src == nil {
		return nil, errs.New(errs.Internal, "finish: lease %s has no Pull", ref.Lease)
	}
	return h.src.finished(seals, req.Rows)
}

// AwaitOwned implements WorkerService.
func (s *workerService) AwaitOwned(ctx context.Context, req *brokerv1.AwaitOwnedRequest) (*brokerv1.AwaitOwnedResponse, error) {
	ref, err := s.b.refOf(req.Attach, req.Lease, req.Epoch)
	if err != nil {
		return nil, err
	}
	d, err := s.b.destinationOf(ref)
	if err != nil {
		return nil, err
	}
	select {
	case <-d.done:
		return d.owned, d.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// AwaitSettled implements WorkerService.
func (s *workerService) AwaitSettled(ctx context.Context, req *brokerv1.AwaitSettledRequest) (*brokerv1.AwaitSettledResponse, error) {
	ref, err := s.b.refOf(req.Attach, req.Lease, req.Epoch)
	if err != nil {
		return nil, err
	}
	d, err := s.b.destinationOf(ref)
	if err != nil {
		return nil, err
	}
	d.begin()
	select {
	case <-d.settled:
		return &brokerv1.AwaitSettledResponse{}, d.unsettled
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (b *Broker) destinationOf(ref lease.Ref) (*destination, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.noteEpoch(ref)
	h := b.held[ref.Lease]
	if fault.Off(fault.Epoch) && h != nil {
		ref.Epoch = h.ref.Epoch
	}
	if h != nil && h.ref == ref && h.dest != nil {
		return h.dest, nil // also of a lease that has ended: it knows best why
	}
	if err := b.table.Check(ref); err != nil {
		return nil, err
	}
	return nil, errs.New(errs.Invalid, "lease %s is no destination", ref.Lease)
}

// Retire implements WorkerService. It is taken from a handle that has hung up too, as long as its process lives: a proof
// is welcome from whoever can give it.
func (s *workerService) Retire(_ context.Context, req *brokerv1.RetireRequest) (*brokerv1.RetireResponse, error) {
	ref, err := refIn(req.Attach, req.Lease, req.Epoch)
	if err != nil {
		return nil, err
	}
	if fault.At(fault.BrokerRetired) == fault.Drop {
		return &brokerv1.RetireResponse{}, nil
	}
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	s.b.noteEpoch(ref)
	explained := s.b.table.Check(ref) != nil // the lease had ended when the worker's kernels met the tags
	ev := lease.Retired{Ref: ref, OK: req.Ok, Kind: retiredKind(req.Code), Reason: clip(req.Reason)}
	if len(req.Faults) > 0 { // what the peer was given, or will be, is not to be trusted
		ev.OK, ev.Kind = false, errs.Corrupt
	}
	if _, err := s.b.stepLocked(ev); err != nil {
		return nil, err
	}
	s.b.noteFaults(ref, req.Faults, explained)
	return &brokerv1.RetireResponse{}, nil
}

// retiredKind is the kind of a failure whose worker may not have named one.
func retiredKind(code uint32) errs.Kind {
	if code == 0 {
		return errs.Unavailable
	}
	return errs.KindOfCode(codes.Code(code))
}

// noteEpoch tells of a worker that speaks of its lease as of another epoch than the broker gave it: no worker of ours does. It is
// refused elsewhere. Callers hold mu.
func (b *Broker) noteEpoch(ref lease.Ref) {
	h := b.held[ref.Lease]
	if h == nil || h.ref.Attach != ref.Attach || h.ref.Epoch == ref.Epoch {
		return
	}
	b.metrics.incident("epoch")
	b.cfg.Boundary.Incident(boundary.P2, boundary.StaleEpoch, "lease "+leaseName(ref.Lease))
	b.cfg.Log.Error("incident: a worker speaks of its lease as of another epoch", "lease", ref.Lease.String(), "epoch", h.ref.Epoch, "said", ref.Epoch)
}

// noteFaults counts fault records; those that no revoke explains are an incident.
func (b *Broker) noteFaults(ref lease.Ref, faults []*brokerv1.Fault, explained bool) {
	b.cfg.Boundary.Observed(boundary.P2, boundary.TagFault, "")
	if len(faults) == 0 {
		return
	}
	b.metrics.faults(len(faults), explained)
	if !explained {
		f := faults[0]
		b.metrics.incident("fault")
		b.cfg.Boundary.Incident(boundary.P2, boundary.TagFault, "lease "+leaseName(ref.Lease))
		b.cfg.Audit.Append(event.Fault{Lease: leaseName(ref.Lease), Count: len(faults), Page: f.Page, Want: f.Want, Got: f.Got, Write: f.Write, Length: f.Length})
		b.cfg.Log.Error("incident: fault records of a live lease", "lease", ref.Lease.String(), "count", len(faults),
			"page", f.Page, "want", f.Want, "got", f.Got, "write", f.Write, "length", f.Length)
	}
}

// Refuse implements WorkerService.
func (s *workerService) Refuse(_ context.Context, req *brokerv1.RefuseRequest) (*brokerv1.RefuseResponse, error) {
	h, err := s.b.handleOf(req.Attach)
	if err != nil {
		return nil, err
	}
	a, err := proof.Verify(s.b.cfg.AdmissionKey, req.Admission)
	if err != nil {
		return nil, err
	}
	if a.Prefill != h.worker || a.PrefillBroker != s.b.cfg.Name {
		return nil, errs.New(errs.Denied, "refuse: the admission names another prefill worker")
	}
	if codes.Code(req.Code) == codes.OK {
		return nil, errs.New(errs.Invalid, "refuse: with code OK")
	}
	p, err := s.b.pullOf(a)
	if err != nil {
		return nil, err
	}
	why := errs.New(errs.KindOfCode(codes.Code(req.Code)), "%s", clip(req.Message))
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if p.bound { // by another Run of the same ticket, which is not this one's to end
		return nil, errs.New(errs.Invalid, "refuse: a source lease serves the Pull: retire it")
	}
	p.lose(why)
	s.b.metrics.refused("prefill", why)
	return &brokerv1.RefuseResponse{}, nil
}

// Watch implements WorkerService. One stream a handle: the events that were not sent when it breaks go with it.
func (s *workerService) Watch(req *brokerv1.WatchRequest, stream grpc.ServerStreamingServer[brokerv1.WatchResponse]) error {
	b := s.b
	h, err := b.handleOf(req.Attach)
	if err != nil {
		return err
	}
	if err := b.startWatch(h); err != nil {
		return err
	}
	defer b.endWatch(h)
	last := (*brokerv1.Pool)(nil)
	for {
		now, revokes := b.newsFor(h)
		if last == nil || now.Free != last.Free || now.Draining != last.Draining || now.GuardsOff != last.GuardsOff {
			if err := stream.Send(&brokerv1.WatchResponse{Event: &brokerv1.WatchResponse_Pool{Pool: now}}); err != nil {
				return err
			}
			last = now
		}
		for _, r := range revokes {
			if err := stream.Send(&brokerv1.WatchResponse{Event: &brokerv1.WatchResponse_Revoked{Revoked: r}}); err != nil {
				return err
			}
		}
		select {
		case <-h.wake:
		case <-h.dead:
			return errs.New(errs.Stale, "the attach handle is dead")
		case <-b.ctx.Done():
			return errs.New(errs.Unavailable, "the broker stops")
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

func (b *Broker) startWatch(h *handle) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h.watched {
		return errs.New(errs.Invalid, "watch: the handle has a stream")
	}
	h.watched = true
	return nil
}

func (b *Broker) endWatch(h *handle) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h.watched = false
}

func (b *Broker) newsFor(h *handle) (*brokerv1.Pool, []*brokerv1.Revoked) {
	b.mu.Lock()
	defer b.mu.Unlock()
	revokes := h.revokes
	h.revokes = nil
	return &brokerv1.Pool{Pages: b.cfg.Pages, Free: b.table.Free(), Draining: b.table.Draining() != "", GuardsOff: fault.AnyOff()}, revokes
}

// refOf checks the handle too: a dead one may do nothing but retire.
func (b *Broker) refOf(token, id []byte, epoch uint64) (lease.Ref, error) {
	if _, err := b.handleOf(token); err != nil {
		return lease.Ref{}, err
	}
	return refIn(token, id, epoch)
}

func refIn(token, id []byte, epoch uint64) (lease.Ref, error) {
	if len(token) != len(lease.Attach{}) || len(id) != len(lease.ID{}) {
		return lease.Ref{}, errs.New(errs.Invalid, "attach handle of %d bytes and lease of %d, want %d", len(token), len(id), proof.IDSize)
	}
	return lease.Ref{Lease: lease.ID(id), Attach: lease.Attach(token), Epoch: epoch}, nil
}

func sealsOf(pages []*brokerv1.PageSeal) ([]lease.PageSeal, error) {
	out := make([]lease.PageSeal, len(pages))
	for i, p := range pages {
		if len(p.GetDigest()) != proof.DigestSize {
			return nil, errs.New(errs.Invalid, "seal: digest of %d bytes, want %d", len(p.GetDigest()), proof.DigestSize)
		}
		out[i] = lease.PageSeal{Index: p.Index, Rows: p.Rows, Digest: pagesum.Digest(p.Digest)}
	}
	return out, nil
}

// clip bounds words that are passed on. It never leaves half a character: a message with one cannot be sent at all.
func clip(s string) string {
	if len(s) > maxReason {
		s = s[:maxReason]
	}
	return strings.ToValidUTF8(s, "")
}
