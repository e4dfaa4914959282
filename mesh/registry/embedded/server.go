package embedded

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"leasehold.dev/mesh/identity"
	"leasehold.dev/mesh/registry"
	"leasehold.dev/protos/errs"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

// Service is the name in the certificate of the process that serves the registry.
const Service = "registry"

// Server is the registry. It is safe for concurrent use.
type Server struct {
	meshv1.UnimplementedRegistryServiceServer
	closing chan struct{}

	mu      sync.Mutex
	table   table
	changed chan struct{} // closed and replaced at each change
	timer   *time.Timer
	closed  bool
}

// NewServer makes an empty registry.
func NewServer() *Server {
	return &Server{table: table{}, changed: make(chan struct{}), closing: make(chan struct{})}
}

// Register serves s on g.
func (s *Server) Register(g grpc.ServiceRegistrar) { meshv1.RegisterRegistryServiceServer(g, s) }

// Methods are the full names of what s serves. Anyone of the trust domain may call them: who beats or leaves can do so in
// its own name only.
func Methods() []string {
	return []string{meshv1.RegistryService_Beat_FullMethodName, meshv1.RegistryService_Leave_FullMethodName,
		meshv1.RegistryService_Watch_FullMethodName, meshv1.RegistryService_List_FullMethodName}
}

// Close ends all watches.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	close(s.closing)
	if s.timer != nil {
		s.timer.Stop()
	}
}

// Beat implements the service.
func (s *Server) Beat(ctx context.Context, req *meshv1.BeatRequest) (*meshv1.BeatResponse, error) {
	in := fromWire(req.GetInstance())
	if err := own(ctx, in.Service, in.ID); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ttl := time.Duration(req.GetTtlMs()) * time.Millisecond
	changed, err := s.table.beat(time.Now(), in, ttl, req.GetPassing())
	if err != nil {
		return nil, err
	}
	s.after(changed)
	return &meshv1.BeatResponse{}, nil
}

// Leave implements the service.
func (s *Server) Leave(ctx context.Context, req *meshv1.LeaveRequest) (*meshv1.LeaveResponse, error) {
	if err := own(ctx, req.GetService(), req.GetId()); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.after(s.table.leave(req.GetService(), req.GetId()))
	return &meshv1.LeaveResponse{}, nil
}

// Watch implements the service.
func (s *Server) Watch(req *meshv1.WatchRequest, stream grpc.ServerStreamingServer[meshv1.WatchResponse]) error {
	var sent []registry.Instance
	for first := true; ; first = false {
		s.mu.Lock()
		set, changed := s.table.passing(req.GetService()), s.changed
		s.mu.Unlock()
		if first || !slices.EqualFunc(set, sent, registry.Instance.Equal) {
			resp := &meshv1.WatchResponse{}
			for _, in := range set {
				resp.Instances = append(resp.Instances, toWire(in))
			}
			if err := stream.Send(resp); err != nil {
				return errs.Mark(err, errs.Unavailable)
			}
			sent = set
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-s.closing:
			return errs.New(errs.Unavailable, "the registry is stopping")
		}
	}
}

// List implements the service.
func (s *Server) List(_ context.Context, req *meshv1.ListRequest) (*meshv1.ListResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &meshv1.ListResponse{}
	for _, l := range s.table.listed(req.GetService()) {
		out.Listed = append(out.Listed, &meshv1.Listed{Instance: toWire(l.Instance), Passing: l.Passing})
	}
	return out, nil
}

// own refuses to speak for another instance. Plain text has no names; the guard has let it through.
func own(ctx context.Context, service, id string) error {
	gotService, gotID, ok := identity.Peer(ctx)
	if ok && (gotService != service || gotID != id) {
		return errs.New(errs.Denied, "%s/%s speaks for %.70s/%.70s", gotService, gotID, service, id)
	}
	return nil
}

// after tells the watchers and sets the timer to the next expiry. The caller holds the lock.
func (s *Server) after(changed bool) {
	if changed {
		close(s.changed)
		s.changed = make(chan struct{})
	}
	if s.timer != nil {
		s.timer.Stop()
	}
	if next := s.table.next(); !next.IsZero() && !s.closed {
		s.timer = time.AfterFunc(time.Until(next), s.expire)
	}
}

func (s *Server) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.after(s.table.expire(time.Now()))
}

func fromWire(in *meshv1.Instance) registry.Instance {
	return registry.Instance{Service: in.GetService(), ID: in.GetId(), Address: in.GetAddress(), Meta: in.GetMeta()}
}

func toWire(in registry.Instance) *meshv1.Instance {
	return &meshv1.Instance{Service: in.Service, Id: in.ID, Address: in.Address, Meta: in.Meta}
}
