package mesh

import (
	"context"

	"leasehold.dev/mesh/registry/embedded"
)

// ServeRegistry makes s, whose service must be [embedded.Service], the mesh's embedded registry.
func ServeRegistry(s *Server) {
	r := embedded.NewServer()
	r.Register(s.GRPC())
	for _, m := range embedded.Methods() {
		s.Allow(m, Anyone)
	}
	s.OnDrain(func(context.Context) { r.Close() })
}
