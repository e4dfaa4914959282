package server

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/proof"
)

const (
	keptRecords = 1 << 14 // about 300 bytes each
	mostRecords = 256     // in one message
	recordBeat  = time.Second
)

// recordService is the broker's face to reconcilers. That callers are routers is the mesh's to check.
type recordService struct {
	brokerv1.UnimplementedRecordServiceServer
	b *Broker
}

// Follow implements RecordService.
func (s *recordService) Follow(req *brokerv1.FollowRequest, stream grpc.ServerStreamingServer[brokerv1.FollowResponse]) error {
	b := s.b
	if err := b.enter(); err != nil {
		return err
	}
	defer b.wg.Done()
	after := req.GetAfter()
	if string(req.GetInstance()) != string(b.instance) {
		after = 0
	}
	beat := time.NewTicker(recordBeat)
	defer beat.Stop()
	for {
		b.mu.Lock()
		some, err := b.records.After(after, mostRecords)
		head, news := b.records.Head(), b.news
		b.mu.Unlock()
		if err != nil {
			return err
		}
		if err := stream.Send(&brokerv1.FollowResponse{Instance: b.instance, Head: head, Records: some}); err != nil {
			return err
		}
		if len(some) > 0 {
			if after = some[len(some)-1].Seq; after < head {
				continue
			}
		}
		select {
		case <-news:
		case <-beat.C:
		case <-b.ctx.Done():
			return errs.New(errs.Unavailable, "the broker stops")
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// keep adds a record and wakes those who follow. Callers hold mu.
func (b *Broker) keep(r *brokerv1.LeaseRecord) {
	b.records.Add(r)
	close(b.news)
	b.news = make(chan struct{})
}

// half is the part of a record that the admission and the lease give. h is nil when there was no lease. Callers hold mu.
func (b *Broker) half(a *meshv1.Admission, role brokerv1.Role, h *held, err error) *brokerv1.LeaseRecord {
	r := &brokerv1.LeaseRecord{AdmissionId: a.Id, Role: role, Tenant: a.Tenant, Mover: a.Mover, Code: codeOf(err),
		LayoutHash: b.own.LayoutHash, ModelRevision: b.own.ModelRevision}
	if h != nil {
		r.LeaseHash, r.Epoch, r.Tenant, r.Worker = proof.LeaseHash(h.id[:]), h.ref.Epoch, h.tenant, h.call.h.worker
		r.Reserved = uint32(len(b.table.Pages(h.id)))
	}
	return r
}

// codeOf is the code that a caller would see; OK when err is nil.
func codeOf(err error) uint32 {
	if err == nil {
		return uint32(codes.OK)
	}
	return uint32(status.Code(errs.ToStatus(err)))
}

// recordSource is called when a Pull has ended; err is nil when its receiver has the Completion. A lease that was handed over
// is not in the table any more: what it was is in the Pull. Callers hold mu.
func (b *Broker) recordSource(p *parked, err error) {
	if err != nil && p.err != nil { // the cause; that the receiver went away is its effect
		err = p.err
	}
	r := b.half(p.admission, brokerv1.Role_ROLE_SOURCE, nil, err)
	if p.bound {
		r.LeaseHash, r.Epoch, r.Worker, r.Reserved = proof.LeaseHash(p.ref.Lease[:]), p.ref.Epoch, p.worker, uint32(len(p.pages))
		r.PromptDigest = p.prompt
		from, _, _ := p.core.Want()
		r.FromToken, r.Rows, r.Pages = from, p.core.Appended(), uint32(len(p.core.Sealed()))
	}
	if p.finish != nil && err == nil {
		r.Root = p.finish.Root
	}
	b.keep(r)
}

// recordDestination is called when a destination is its worker's, or has failed. Callers hold mu.
func (b *Broker) recordDestination(d *destination, owned *brokerv1.AwaitOwnedResponse, err error) {
	r := b.half(d.ticket, brokerv1.Role_ROLE_DESTINATION, d.h, err)
	r.PromptDigest = d.expect.PromptDigest
	if c := owned.GetCompletion(); c != nil && err == nil {
		r.Reserved = uint32(len(owned.Pages))
		r.FromToken, r.Rows, r.Pages, r.Root = c.FromToken, owned.Rows, owned.ExpectedPages, c.Root
		r.SourceLeaseHash, r.SourceInstance, r.SourceEpoch = c.Lease, c.Instance, c.Epoch
	}
	b.keep(r)
}

// recordSolo is called when decode got pages to compute the prompt itself. Callers hold mu.
func (b *Broker) recordSolo(a *meshv1.Admission, h *held, ids []int32) {
	r := b.half(a, brokerv1.Role_ROLE_SOLO, h, nil)
	r.PromptDigest = proof.PromptDigest(a.Nonce, a.Tenant, b.own.ModelRevision, ids)
	b.keep(r)
}
