package mesh

import (
	"context"
	"log/slog"
	"net/http"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	"leasehold.dev/mesh/identity"
	"leasehold.dev/mesh/peers"
	"leasehold.dev/mesh/registry"
)

// Anyone in [Server.Allow] stands for every identity of the trust domain.
const Anyone = "*"

// Server is what a process of the mesh has in common with the others. Its fields are set by [New] and read-only.
type Server struct {
	Log      *slog.Logger
	Registry registry.Registry // nil when none was given
	Identity *identity.Identity
	Meter    metric.Meter
	Tracer   trace.Tracer
}

// New opens the listeners and everything else that can fail, and serves nothing yet.
func New(ctx context.Context, c Config, opts ...grpc.ServerOption) (*Server, error) { return nil, nil }

// GRPC is where the process registers its services before Run.
func (s *Server) GRPC() *grpc.Server { return nil }

// Allow lets callers of services call method, a full name such as /leasehold.mesh.v1.RegistryService/Beat.
func (s *Server) Allow(method string, services ...string) {}

// Check adds a readiness check: nil is ready, an error's text is the reason that /readyz shows.
func (s *Server) Check(name string, f func(context.Context) error) {}

// OnDrain adds a hook to run after the process left the registry; hooks run in order.
func (s *Server) OnDrain(f func(context.Context)) {}

// Draining is closed when the drain begins. Endless streams end then, or they hold the drain up.
func (s *Server) Draining() <-chan struct{} { return nil }

// Addr is the gRPC listener's address.
func (s *Server) Addr() string { return "" }

// AdminMux is the admin server's routes.
func (s *Server) AdminMux() *http.ServeMux { return nil }

// Dial connects to an instance, which must prove that it is that instance. It is a [peers.Dialer] but for opts.
func (s *Server) Dial(in registry.Instance, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	return nil, nil
}

// Peers follows the instances of service with s.Dial.
func (s *Server) Peers(ctx context.Context, service string, opts ...grpc.DialOption) (*peers.Set, error) {
	return nil, nil
}

// Run serves until ctx ends, then drains.
func (s *Server) Run(ctx context.Context) error { return nil }

// Close gives the listeners back. Run does it by itself.
func (s *Server) Close() error { return nil }
