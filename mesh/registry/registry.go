package registry

import (
	"cmp"
	"context"
	"maps"
	"net"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"leasehold.dev/mesh/name"
	"leasehold.dev/protos/errs"
)

// TTL is how long an entry outlives its last beat, unless a registry is told otherwise. Beats come three times in it.
const TTL = 3 * time.Second

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

// Listed is an instance that is in a registry, and whether its self-check passes. Only operators ask for those that do not.
type Listed struct {
	Instance
	Passing bool
}

// What one entry may hold: Consul's limits, kept by every implementation so that a change of registry changes nothing.
const (
	maxMeta      = 64
	maxMetaKey   = 128
	maxMetaValue = 512
)

// Validate is nil if every registry takes in.
func Validate(in Instance) error {
	if err := name.Check("service", in.Service); err != nil {
		return err
	}
	if err := name.Check("id", in.ID); err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(in.Address)
	if err != nil || host == "" {
		return errs.New(errs.Invalid, "address %.100q is not host:port", in.Address)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return errs.New(errs.Invalid, "address %.100q has no port between 1 and 65535", in.Address)
	}
	if len(in.Meta) > maxMeta {
		return errs.New(errs.Invalid, "%d meta pairs, at most %d are allowed", len(in.Meta), maxMeta)
	}
	for k, v := range in.Meta {
		if !metaKey(k) {
			return errs.New(errs.Invalid, "meta key %.140q is not 1 to %d letters, digits, '-' and '_'", k, maxMetaKey)
		}
		if len(v) > maxMetaValue {
			return errs.New(errs.Invalid, "meta %s has %d bytes, at most %d are allowed", k, len(v), maxMetaValue)
		}
		if !utf8.ValidString(v) {
			return errs.New(errs.Invalid, "meta %s is not UTF-8", k)
		}
	}
	return nil
}

func metaKey(k string) bool {
	for i := range len(k) {
		c := k[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' {
			continue
		}
		return false
	}
	return k != "" && len(k) <= maxMetaKey
}

// Equal reports whether a and b say the same.
func (a Instance) Equal(b Instance) bool {
	return a.Service == b.Service && a.ID == b.ID && a.Address == b.Address && maps.Equal(a.Meta, b.Meta)
}

// Compare orders instances by service, then id.
func Compare(a, b Instance) int {
	return cmp.Or(strings.Compare(a.Service, b.Service), strings.Compare(a.ID, b.ID))
}

// ValidateService is nil if service can be watched.
func ValidateService(service string) error { return name.Check("service", service) }
