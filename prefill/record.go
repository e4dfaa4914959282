package prefill

import (
	"encoding/hex"

	"leasehold.dev/kvbroker/client"
	"leasehold.dev/mesh/audit/event"
	"leasehold.dev/protos/errs"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

// failed puts on record that this half gave up an admission, before or after it had a lease for it.
func (s *Service) failed(a *meshv1.Admission, lease *client.Lease, err error) {
	e := event.HalfFailed{Admission: hex.EncodeToString(a.Id), Tenant: a.Tenant, Half: "prefill", Error: errs.KindOf(err).String(), Reason: event.Reason(err)}
	if lease != nil {
		e.Lease = hex.EncodeToString(lease.Hash())
	}
	s.audit.Append(e)
}

// faults puts the fault records of a job's kernels on record. The job's task is done.
func (s *Service) faults(j *job) {
	found := j.task.Faults()
	if len(found) == 0 {
		return
	}
	e := event.Faults{Admission: hex.EncodeToString(j.a.Id), Tenant: j.a.Tenant, Lease: hex.EncodeToString(j.lease.Hash())}
	for _, f := range found {
		e.Records = append(e.Records, event.FaultRecord{Fault: f.Kind.String(), Page: f.Page, Want: f.Want, Got: f.Got})
	}
	s.audit.Append(e)
}
