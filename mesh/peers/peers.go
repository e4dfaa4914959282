package peers

import (
	"context"

	"google.golang.org/grpc"

	"leasehold.dev/mesh/registry"
)

// Dialer makes the connection to an instance; see mesh.Server.Dial.
type Dialer func(registry.Instance) (*grpc.ClientConn, error)

// Set is the connections to the passing instances of one service. It is safe for concurrent use.
type Set struct{}

// Watch follows service in reg until ctx ends or Close.
func Watch(ctx context.Context, reg registry.Registry, service string, dial Dialer) (*Set, error) {
	return &Set{}, nil
}

// All is the current peers, sorted by id.
func (s *Set) All() []*Peer { return nil }

// Get is the peer named id, or nil.
func (s *Set) Get(id string) *Peer { return nil }

// Changed is closed at the next change of the set. Ask for it before reading the set.
func (s *Set) Changed() <-chan struct{} { return nil }

// Close closes all connections and joins the set's goroutine.
func (s *Set) Close() {}

// Peer is one instance, as it was when the set was read.
type Peer struct {
	registry.Instance
	Conn *grpc.ClientConn // closed some time after the instance leaves the set
}

// Do calls f unless the peer's breaker is open; then the error is Unavailable. f's error moves the breaker.
func (p *Peer) Do(f func() error) error { return f() }

// Open reports whether the breaker refuses calls.
func (p *Peer) Open() bool { return false }

// State is the breaker's state: closed, half-open or open.
func (p *Peer) State() string { return "closed" }
