package server

import (
	"context"
	"time"

	"leasehold.dev/kvbroker/lease"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	"leasehold.dev/protos/proof"
)

// infoService is the broker's face to operators.
type infoService struct {
	brokerv1.UnimplementedInfoServiceServer
	b *Broker
}

// Describe implements InfoService.
func (s *infoService) Describe(context.Context, *brokerv1.DescribeRequest) (*brokerv1.DescribeResponse, error) {
	return s.b.describe(time.Now()), nil
}

func (b *Broker) describe(now time.Time) *brokerv1.DescribeResponse {
	b.mu.Lock()
	snap := b.table.Snapshot()
	since := make(map[lease.ID]time.Time, len(b.held))
	for id, h := range b.held {
		since[id] = h.since
	}
	b.mu.Unlock()
	out := &brokerv1.DescribeResponse{Identity: b.identity(), Pool: poolCount(snap)}
	for _, l := range snap.Leases {
		out.Leases = append(out.Leases, &brokerv1.LeaseInfo{
			LeaseHash: proof.LeaseHash(l.Lease[:]), AdmissionId: l.Admission[:], Tenant: l.Tenant, Worker: l.Worker,
			Role: roles[l.Role], State: l.State.String(), Pages: l.Pages, Rows: l.Rows,
			AgeMs: uint64(max(now.Sub(since[l.Lease]), 0).Milliseconds()),
		})
	}
	for _, t := range snap.Tenants {
		out.Tenants = append(out.Tenants, &brokerv1.TenantUse{Tenant: t.Tenant, Pages: t.Pages, Quota: t.Quota})
	}
	for _, w := range snap.Workers {
		out.Workers = append(out.Workers, &brokerv1.WorkerInfo{Id: w.Worker, Pid: w.PID, Epoch: w.Epoch})
	}
	return out
}

var roles = map[lease.Role]brokerv1.Role{
	lease.Solo: brokerv1.Role_ROLE_SOLO, lease.Destination: brokerv1.Role_ROLE_DESTINATION, lease.Source: brokerv1.Role_ROLE_SOURCE,
}

func poolCount(s lease.Snapshot) *brokerv1.PoolCount {
	n := s.States
	return &brokerv1.PoolCount{
		Pages: s.Pages, Free: n[lease.Free], Reserved: n[lease.Reserved], Writing: n[lease.Writing], Sealed: n[lease.Sealed],
		Staged: n[lease.Staged], Verifying: n[lease.Verifying], Owned: n[lease.Owned], Releasing: n[lease.Releasing],
		Quarantine: n[lease.Quarantine], Zeroing: n[lease.Zeroing],
	}
}
