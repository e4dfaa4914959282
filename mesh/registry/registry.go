package registry

import "context"

// Instance is one process of a service.
type Instance struct {
	Service string            // router, prefill, decode, kvbroker
	ID      string            // unique within the service
	Address string            // host:port of its gRPC server
	Meta    map[string]string // at most 64 pairs; see [Validate]
}

// Registry registers this process and watches others. Implementations are safe for concurrent use.
type Registry interface {
	// Register lists in until leave is called or ctx ends, and lists it as passing only while check returns nil. It
	// answers at once: a registry that is away, or that lost the entry, is told again in the background. An error
	// means that in is malformed. leave takes the entry out now and joins the background work; when ctx ends without
	// leave, the entry goes with its TTL.
	Register(ctx context.Context, in Instance, check func(context.Context) error) (leave func(context.Context) error, err error)

	// Watch sends the passing set of service, sorted by id: at once when it is known, then after each change. A slow
	// reader sees the newest set only. While the registry is away the last good set stands. The channel closes when
	// ctx ends. The sets are shared: do not change them.
	Watch(ctx context.Context, service string) (<-chan []Instance, error)
}
