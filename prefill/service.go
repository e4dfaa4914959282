package prefill

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/gpu/worker"
	"leasehold.dev/kvbroker/client"
	"leasehold.dev/mesh/audit"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/fault"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	prefillv1 "leasehold.dev/protos/gen/leasehold/prefill/v1"
	"leasehold.dev/protos/pagesum"
)

// tellTime is how long a worker tries to tell its broker how something ended.
const tellTime = 5 * time.Second

// Host is the engine and the attachment of a prefill worker.
type Host = worker.Host[*client.Client]

type link = worker.Link[*client.Client]

// Service serves PrefillService.
type Service struct {
	prefillv1.UnimplementedPrefillServiceServer
	host  *Host
	log   *slog.Logger
	audit *audit.Log
	stop  <-chan struct{}
}

// NewService serves on host. records may be nil; stop ends the watchers' streams.
func NewService(host *Host, log *slog.Logger, records *audit.Log, stop <-chan struct{}) *Service {
	return &Service{host: host, log: log, audit: records, stop: stop}
}

// Ready is the readiness check. What cannot be put on record is not computed.
func (s *Service) Ready(ctx context.Context) error {
	if err := s.audit.Healthy(ctx); err != nil {
		return err
	}
	return s.host.Ready(ctx)
}

// Run implements PrefillService.
func (s *Service) Run(ctx context.Context, req *prefillv1.RunRequest) (*prefillv1.RunResponse, error) {
	v, err := s.run(ctx, req)
	s.host.Ended(err)
	if err != nil {
		return nil, err
	}
	return &prefillv1.RunResponse{Verdict: v}, nil
}

func (s *Service) run(ctx context.Context, req *prefillv1.RunRequest) (*meshv1.PrefillVerdict, error) {
	j, err := s.admit(ctx, req)
	if err != nil {
		return nil, err
	}
	return j.run()
}

// admit does all that comes before the first token: it returns a job that holds a lease, or has told the decode side.
func (s *Service) admit(ctx context.Context, req *prefillv1.RunRequest) (*job, error) {
	l, err := s.host.Link()
	if err != nil {
		return nil, err
	}
	defer l.Release()
	j, err := s.reserve(ctx, l, req)
	if err != nil {
		s.refuse(ctx, l, req.GetAdmission(), err)
	}
	return j, err
}

func (s *Service) reserve(ctx context.Context, l *link, req *prefillv1.RunRequest) (_ *job, err error) {
	if err := s.Ready(ctx); err != nil {
		return nil, err
	}
	a, err := s.host.Ticket(l, worker.Prefill, req.GetAdmission(), req.GetTokenIds())
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.failed(a, nil, err)
		}
	}()
	switch n := a.PromptTokens; {
	case n > l.Limit && !fault.Off(fault.LimitPrefill):
		return nil, errs.New(errs.Limit, "prefill: a prompt of %d tokens, this worker's limit is %d (pool of %d pages)", n, l.Limit, l.Facts.PoolPages)
	case n < 2:
		return nil, errs.New(errs.Invalid, "prefill: a prompt of %d tokens leaves nothing to compute", n)
	}
	ids, pages := stubbed(req.TokenIds)
	ctx, cancel := context.WithDeadline(ctx, worker.Deadline(a))
	task, err := l.Admit(a.Tenant, uint32(len(ids))-1, worker.Deadline(a))
	if err != nil {
		cancel()
		return nil, err
	}
	lease, err := l.Broker.Reserve(ctx, client.Reservation{
		Admission: req.Admission, Role: brokerv1.Role_ROLE_SOURCE, TokenIDs: ids, Pages: pages,
	})
	if err != nil {
		task.Cancel(err)
		cancel()
		return nil, err
	}
	return s.newJob(ctx, cancel, l, a, ids, task, lease), nil
}

// refuse tells the waiting decode side why this worker will not serve an admission.
func (s *Service) refuse(ctx context.Context, l *link, a *meshv1.SignedAdmission, why error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellTime)
	defer cancel()
	if err := l.Broker.Refuse(ctx, a, why); err != nil {
		s.log.InfoContext(ctx, "a refusal did not reach the broker", "err", err)
	}
}

// Watch implements PrefillService.
func (s *Service) Watch(_ *prefillv1.WatchRequest, stream grpc.ServerStreamingServer[prefillv1.WatchResponse]) error {
	return s.host.Watch(stream.Context(), s.stop, s.status, func(st *meshv1.WorkerStatus) error {
		return stream.Send(&prefillv1.WatchResponse{Status: st})
	})
}

func (s *Service) status() *meshv1.WorkerStatus {
	st := s.host.Status()
	if err := s.audit.Healthy(context.Background()); err != nil && st.Ready {
		st.Ready, st.Reason = false, err.Error()
	}
	return st
}

// atRest digests pages of a lease for an engine whose guards are off; nil when the engine gives digests itself.
func (s *Service) atRest(l *link, lease *client.Lease) func(place, rows uint32) (pagesum.Digest, error) {
	if s.host.Digests() {
		return nil
	}
	e, m := s.host.Engine(), l.Broker.Mapping()
	return func(place, rows uint32) (pagesum.Digest, error) {
		d, _, err := engine.PageSum(e.Layout(), m.Page(lease.Pages[place]), rows, e.Keys())
		return d, err
	}
}
