package mesh

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"leasehold.dev/mesh/audit"
	"leasehold.dev/mesh/audit/event"
	"leasehold.dev/mesh/boundary"
	"leasehold.dev/mesh/discover"
	"leasehold.dev/mesh/identity"
	"leasehold.dev/mesh/peers"
	"leasehold.dev/mesh/registry"
	"leasehold.dev/mesh/rpc"
	"leasehold.dev/mesh/telemetry"
	"leasehold.dev/protos/errs"
)

// Anyone in [Server.Allow] stands for every identity of the trust domain.
const Anyone = rpc.Anyone

// Server is what a process of the mesh has in common with the others. Its fields are set by [New] and read-only.
type Server struct {
	Log      *slog.Logger
	Registry registry.Registry // nil when none was given
	Identity *identity.Identity
	Meter    metric.Meter
	Tracer   trace.Tracer
	Boundary *boundary.Recorder // of this process's detectors
	Audit    *audit.Log         // nil without -audit-dir; it takes records until Close

	conf      Config
	telemetry *telemetry.Telemetry
	discovery *discover.Discovery // nil when no registry was given
	grpcLn    net.Listener
	adminLn   net.Listener
	grpc      *grpc.Server
	health    *health.Server
	guard     rpc.Guard
	ready     readiness
	mux       *http.ServeMux
	draining  chan struct{}
	close     func() error
	faults    io.Closer // of a faults build; else nil
	stuck     bool      // a handler outlived the drain: stopping again would wait for it

	mu    sync.Mutex
	hooks []func(context.Context)
}

// New opens the listeners and everything else that can fail, and serves nothing yet. ctx bounds only New itself. opts are
// added to those of package rpc; the interceptors and credentials are not for services to change.
func New(ctx context.Context, c Config, opts ...grpc.ServerOption) (*Server, error) {
	s := &Server{conf: c, draining: make(chan struct{})}
	s.close = sync.OnceValue(s.release)
	if err := s.open(ctx, opts); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Server) open(ctx context.Context, opts []grpc.ServerOption) (err error) {
	if err := s.conf.check(); err != nil {
		return err
	}
	if s.Identity, err = s.conf.identify(); err != nil {
		return err
	}
	if s.Log, err = s.conf.logger(); err != nil {
		return err
	}
	if s.telemetry, err = telemetry.New(ctx, s.conf.Service, s.conf.ID, s.conf.OTLP); err != nil {
		return err
	}
	s.Meter, s.Tracer = s.telemetry.Meter(), s.telemetry.Tracer()
	if s.Boundary, err = boundary.New(s.Meter, time.Now); err != nil {
		return errs.Mark(err, errs.Internal)
	}
	if err := s.openFaults(); err != nil {
		return err
	}
	if s.conf.AuditDir != "" {
		s.Audit, err = audit.Open(audit.Config{Dir: s.conf.AuditDir, Service: s.conf.Service, Instance: s.conf.ID,
			FileSize: s.conf.AuditFileSize, Keep: s.conf.AuditKeep, Meter: s.Meter, Log: s.Log})
		if err != nil {
			return err
		}
		s.Boundary.Tell(func(p boundary.Property, d boundary.Detector, about string) {
			s.Audit.Append(event.Incident{Property: string(p), Detector: string(d), About: event.Clip(about)})
		})
	}
	if s.grpcLn, err = net.Listen("tcp", s.conf.Listen); err != nil {
		return errs.New(errs.Invalid, "-listen: %w", err)
	}
	if s.adminLn, err = net.Listen("tcp", s.conf.Admin); err != nil {
		return errs.New(errs.Invalid, "-admin: %w", err)
	}
	if s.conf.Registry != "" {
		if s.discovery, err = discover.Open(s.conf.Registry, s.Identity, s.Log); err != nil {
			return err
		}
		s.Registry = s.discovery
	}
	chain := rpc.Server{Log: s.Log, Identity: s.Identity, Guard: &s.guard, Stats: s.telemetry.ServerStats(s.guard.Knows)}
	s.grpc = grpc.NewServer(append(chain.Options(), opts...)...)
	s.health = health.NewServer()
	s.health.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
	healthpb.RegisterHealthServer(s.grpc, s.health)
	s.Allow(healthpb.Health_Check_FullMethodName, Anyone)
	s.Check("identity", func(context.Context) error { return s.Identity.Check() })
	if s.Audit != nil {
		s.Check("audit", s.Audit.Healthy)
	}
	s.mux = newAdmin(s.telemetry.Handler(), &s.ready)
	return s.gauges()
}

func (s *Server) gauges() error {
	_, err := s.Meter.Int64ObservableGauge("leasehold_ready", metric.WithDescription("1 when every readiness check passes"),
		metric.WithInt64Callback(func(ctx context.Context, o metric.Int64Observer) error {
			o.Observe(number(s.ready.look(ctx).Ready))
			return nil
		}))
	if err != nil {
		return errs.Mark(err, errs.Internal)
	}
	_, err = s.Meter.Int64ObservableGauge(audit.MetricOn, metric.WithDescription("1 with an audit log, 0 without"),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(number(s.Audit != nil))
			return nil
		}))
	return errs.Mark(err, errs.Internal)
}

func number(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// GRPC is where the process registers its services before Run.
func (s *Server) GRPC() *grpc.Server { return s.grpc }

// Allow lets callers of services call method, a full name such as /leasehold.mesh.v1.RegistryService/Beat.
func (s *Server) Allow(method string, services ...string) { s.guard.Allow(method, services...) }

// Check adds a readiness check: nil is ready, an error's text is the reason that /readyz shows. f runs at every beat and
// request, concurrently with itself, and must answer within a second.
func (s *Server) Check(name string, f func(context.Context) error) { s.ready.add(name, f) }

// OnDrain adds a hook to run after the process left the registry and before the last calls are waited for. Hooks run in
// the order in which they were added; their ctx ends with the drain time.
func (s *Server) OnDrain(f func(context.Context)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hooks = append(s.hooks, f)
}

// Draining is closed when the drain begins. Endless streams end then, or they hold the drain up.
func (s *Server) Draining() <-chan struct{} { return s.draining }

// ID is this instance's name.
func (s *Server) ID() string { return s.conf.ID }

// Addr is the gRPC listener's address.
func (s *Server) Addr() string { return s.grpcLn.Addr().String() }

// AdminAddr is the admin listener's address.
func (s *Server) AdminAddr() string { return s.adminLn.Addr().String() }

// AdminMux is the admin server's routes.
func (s *Server) AdminMux() *http.ServeMux { return s.mux }

// Dial connects to an instance, which must prove that it is that instance. It is a [peers.Dialer] but for opts.
func (s *Server) Dial(in registry.Instance, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	base := rpc.DialOptions(s.Identity.ClientCreds(in.Service, in.ID), s.telemetry.ClientStats())
	return rpc.Dial(in.Address, append(base, opts...)...)
}

// Peers follows the instances of service with s.Dial, and shows their breakers in /metrics. Call it once a service; the
// caller closes the set.
func (s *Server) Peers(ctx context.Context, service string, opts ...grpc.DialOption) (*peers.Set, error) {
	if s.Registry == nil {
		return nil, errs.New(errs.Invalid, "-registry is needed to find %s", service)
	}
	set, err := peers.Watch(ctx, s.Registry, service, func(in registry.Instance) (*grpc.ClientConn, error) {
		return s.Dial(in, opts...)
	})
	if err != nil {
		return nil, err
	}
	_, err = s.Meter.Int64ObservableGauge("leasehold_peer_breaker_open",
		metric.WithDescription("1 while the breaker to a peer refuses calls"),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			for _, p := range set.All() {
				o.Observe(number(p.Open()), metric.WithAttributes(attribute.String("peer_service", service), attribute.String("peer", p.ID)))
			}
			return nil
		}))
	return set, errs.Mark(err, errs.Internal)
}
