package server

import (
	"encoding/hex"

	"leasehold.dev/kvbroker/lease"
	"leasehold.dev/mesh/audit/event"
	"leasehold.dev/protos/proof"
)

// leaseName is how verdicts and audit logs name a lease; empty for none.
func leaseName(id lease.ID) string {
	if id == (lease.ID{}) {
		return ""
	}
	return hex.EncodeToString(proof.LeaseHash(id[:]))
}

func (b *Broker) auditStart() {
	b.cfg.Audit.Append(event.BrokerStarted{Broker: b.cfg.Name, Instance: hex.EncodeToString(b.instance), Pages: b.cfg.Pages})
}

var leaseKinds = map[lease.RecordKind]string{
	lease.WasFinished: event.KindLeaseFinished, lease.WasHandedOver: event.KindLeaseHandedOver, lease.WasReleased: event.KindLeaseReleased,
	lease.WasQuarantined: event.KindLeaseQuarantined, lease.WasProven: event.KindLeaseProven,
}

// auditLease puts what became of a lease on record, in the table's order: callers hold mu, and the table is as the step
// has left it.
func (b *Broker) auditLease(r lease.Record) {
	if b.cfg.Audit == nil {
		return
	}
	name := leaseName(r.Lease)
	switch r.Kind {
	case lease.WasReserved:
		l, _ := b.table.Get(r.Lease)
		b.cfg.Audit.Append(event.LeaseGranted{Lease: name, Admission: l.Admission.String(), Tenant: r.Tenant, Worker: l.Worker, Epoch: l.Epoch,
			Role: r.Role.String(), Moved: l.Moved, Pages: b.pagesOf(r.Lease)})
	case lease.WasOwned:
		l, _ := b.table.Get(r.Lease)
		b.cfg.Audit.Append(event.LeaseOwned{Lease: name, Admission: l.Admission.String(), Tenant: r.Tenant, Rows: l.Rows, Pages: b.pagesOf(r.Lease)})
	default:
		b.cfg.Audit.Append(event.Lease{As: leaseKinds[r.Kind], Lease: name, Tenant: r.Tenant, Role: r.Role.String(), Pages: r.Pages,
			Reason: event.Clip(r.Reason)})
	}
}

func (b *Broker) pagesOf(id lease.ID) event.Pages {
	tags := b.table.Pages(id)
	out := make(event.Pages, len(tags))
	for i, t := range tags {
		out[i] = event.Page{Number: t.Page, Generation: t.Tag.Generation()}
	}
	return out
}
