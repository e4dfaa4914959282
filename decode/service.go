package decode

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"leasehold.dev/gpu/worker"
	"leasehold.dev/kvbroker/client"
	"leasehold.dev/mesh/audit"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/fault"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

// tellTime is how long a worker tries to tell its broker how something ended.
const tellTime = 5 * time.Second

// Host is the engine and the attachment of a decode worker.
type Host = worker.Host[*client.Client]

type link = worker.Link[*client.Client]

// Options of a service.
type Options struct {
	Movers []meshv1.Mover // that can bring pages here; without any the worker is not ready
	// SelfPrefill is the longest prompt that decode computes by itself while there are prefill workers. Negative: none
	// ever, and such admissions are refused. Who is asked is the router's choice.
	SelfPrefill int
	Stop        <-chan struct{} // ends the watchers' streams
	Log         *slog.Logger
	Audit       *audit.Log // nil: none
}

// Service serves DecodeService.
type Service struct {
	decodev1.UnimplementedDecodeServiceServer
	host *Host
	o    Options
}

// NewService serves on host.
func NewService(host *Host, o Options) *Service { return &Service{host: host, o: o} }

// Ready is the readiness check. What cannot be put on record is not answered.
func (s *Service) Ready(ctx context.Context) error {
	if err := s.o.Audit.Healthy(ctx); err != nil {
		return err
	}
	if len(s.o.Movers) == 0 {
		return errs.New(errs.Unavailable, "decode: no mover can bring pages here")
	}
	return s.host.Ready(ctx)
}

// Generate implements DecodeService.
func (s *Service) Generate(req *decodev1.GenerateRequest, stream grpc.ServerStreamingServer[decodev1.GenerateResponse]) error {
	err := s.generate(stream.Context(), req, stream.Send)
	s.host.Ended(err)
	return err
}

func (s *Service) generate(ctx context.Context, req *decodev1.GenerateRequest, send func(*decodev1.GenerateResponse) error) error {
	j, err := s.admit(ctx, req)
	if err != nil {
		return err
	}
	if err = j.serve(send); err != nil {
		s.failed(j.a, j.lease, err)
	}
	j.end(err)
	j.cancel()
	return err
}

// admit does all that comes before Admitted: it returns a job that holds a lease.
func (s *Service) admit(ctx context.Context, req *decodev1.GenerateRequest) (_ *job, err error) {
	j := &job{s: s, began: time.Now(), ids: req.GetTokenIds(), looks: make(chan struct{})}
	j.looked = sync.OnceFunc(func() { close(j.looks) })
	l, err := s.host.Link()
	if err != nil {
		return nil, err
	}
	defer l.Release()
	if err := s.Ready(ctx); err != nil {
		return nil, err
	}
	if j.a, err = s.host.Ticket(l, worker.Decode, req.GetAdmission(), j.ids); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.failed(j.a, nil, err)
		}
	}()
	if err := s.checkLimits(j.a, l); err != nil {
		return nil, err
	}
	if j.answer, err = newAnswer(s.host.Model().Tokenizer, req.GetSampling(), j.ids, j.a.MaxNewTokens); err != nil {
		return nil, err
	}
	return j, s.reserve(ctx, l, req.Admission, j)
}

// checkLimits holds an admission against what this worker promised and what it derived itself.
func (s *Service) checkLimits(a *meshv1.Admission, l *link) error {
	if most := min(s.host.Promise(), l.Limit); uint64(a.PromptTokens)+uint64(a.MaxNewTokens) > uint64(most) && !fault.Off(fault.LimitDecode) {
		return errs.New(errs.Limit, "decode: a prompt of %d and %d new tokens, this worker's limit is %d (promised %d, derived %d)",
			a.PromptTokens, a.MaxNewTokens, most, s.host.Promise(), l.Limit)
	}
	if a.Mover == meshv1.Mover_MOVER_NONE && a.PromptTokens > 1 && s.o.SelfPrefill < 0 {
		return errs.New(errs.Invalid, "decode: a prompt of %d tokens without prefill, which this worker never computes", a.PromptTokens)
	}
	return nil
}

func (s *Service) reserve(ctx context.Context, l *link, ticket *meshv1.SignedAdmission, j *job) error {
	a := j.a
	compute, role := uint32(1), brokerv1.Role_ROLE_DESTINATION
	if !j.split() {
		compute, role = a.PromptTokens, brokerv1.Role_ROLE_SOLO
	}
	task, err := l.Admit(a.Tenant, compute, worker.Deadline(a))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithDeadline(ctx, worker.Deadline(a))
	j.lease, err = l.Broker.Reserve(ctx, client.Reservation{
		Admission: ticket, Role: role, TokenIDs: j.ids, Pages: j.needed(),
	})
	if err != nil {
		task.Cancel(err)
		cancel()
		return err
	}
	j.task, j.cancel = task, cancel
	j.instance, j.layout = l.Facts.Instance, l.Facts.LayoutHash
	j.life, j.end = l.Bind(ctx, task, j.lease, j.retire)
	return nil
}

// Watch implements DecodeService.
func (s *Service) Watch(_ *decodev1.WatchRequest, stream grpc.ServerStreamingServer[decodev1.WatchResponse]) error {
	return s.host.Watch(stream.Context(), s.o.Stop, s.status, func(st *meshv1.WorkerStatus) error {
		return stream.Send(&decodev1.WatchResponse{Status: st})
	})
}

func (s *Service) status() *meshv1.WorkerStatus {
	st := s.host.Status()
	st.SelfPrefill = s.o.SelfPrefill >= 0
	st.Movers = slices.DeleteFunc(st.Movers, func(m meshv1.Mover) bool { return !slices.Contains(s.o.Movers, m) })
	if err := s.Ready(context.Background()); err != nil && st.Ready {
		st.Ready, st.Reason = false, err.Error()
	}
	return st
}
