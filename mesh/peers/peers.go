package peers

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"leasehold.dev/mesh/registry"
)

// grace is how long the connection to a peer that left is kept for its running calls.
const grace = 30 * time.Second

// Dialer makes the connection to an instance; see mesh.Server.Dial.
type Dialer func(registry.Instance) (*grpc.ClientConn, error)

// Peer is one instance, as it was when the set was read.
type Peer struct {
	registry.Instance
	Conn *grpc.ClientConn // closed some time after the instance leaves the set

	breaker *breaker
}

// Set is the connections to the passing instances of one service. It is safe for concurrent use.
type Set struct {
	dial   Dialer
	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	peers   map[string]*Peer
	left    []departed
	changed chan struct{}
}

type departed struct {
	peer  *Peer
	close time.Time
}

// Watch follows service in reg until ctx ends or Close; the only error is a malformed service name.
func Watch(ctx context.Context, reg registry.Registry, service string, dial Dialer) (*Set, error) {
	ctx, cancel := context.WithCancel(ctx)
	sets, err := reg.Watch(ctx, service)
	if err != nil {
		cancel()
		return nil, err
	}
	s := &Set{dial: dial, cancel: cancel, done: make(chan struct{}), peers: map[string]*Peer{}, changed: make(chan struct{})}
	go func() {
		defer close(s.done)
		s.follow(sets)
	}()
	return s, nil
}

// Close closes all connections and joins the set's goroutine. The end of Watch's ctx closes them too.
func (s *Set) Close() {
	s.cancel()
	<-s.done
}

// All is the current peers, sorted by id.
func (s *Set) All() []*Peer {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*Peer, 0, len(s.peers))
	for _, p := range s.peers {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *Peer) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// Get is the peer named id, or nil.
func (s *Set) Get(id string) *Peer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.peers[id]
}

// Changed is closed at the next change of the set. Ask for it before reading the set.
func (s *Set) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

func (s *Set) follow(sets <-chan []registry.Instance) {
	timer := time.NewTimer(grace)
	defer timer.Stop()
	for {
		select {
		case set, ok := <-sets:
			if !ok {
				s.closeAll()
				return
			}
			s.apply(time.Now(), set)
		case <-timer.C:
		}
		timer.Reset(s.sweep(time.Now()))
	}
}

// apply makes the peers those of set.
func (s *Set) apply(at time.Time, set []registry.Instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.peers
	s.peers = make(map[string]*Peer, len(set))
	for _, in := range set {
		if p := s.adopt(before[in.ID], in); p != nil {
			s.peers[in.ID] = p
		}
	}
	for id, p := range before {
		if now := s.peers[id]; now == nil || now.Conn != p.Conn {
			s.left = append(s.left, departed{p, at.Add(grace)})
		}
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// adopt is the peer for in: the one that was there, one that left and came back (its connection may still serve calls;
// its breaker starts anew, since its own self-check passes again), or a new one. A peer that cannot be dialled, because its
// address is malformed, is left out.
func (s *Set) adopt(old *Peer, in registry.Instance) *Peer {
	if old != nil && old.Address == in.Address {
		return &Peer{Instance: in, Conn: old.Conn, breaker: old.breaker}
	}
	for i, d := range s.left {
		if d.peer.ID == in.ID && d.peer.Address == in.Address {
			s.left = slices.Delete(s.left, i, i+1)
			d.peer.Conn.ResetConnectBackoff()
			return &Peer{Instance: in, Conn: d.peer.Conn, breaker: newBreaker(in)}
		}
	}
	cc, err := s.dial(in)
	if err != nil {
		return nil
	}
	cc.Connect()
	return &Peer{Instance: in, Conn: cc, breaker: newBreaker(in)}
}

// sweep closes what left long ago, and returns the time until it is to be called again.
func (s *Set) sweep(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := grace
	s.left = slices.DeleteFunc(s.left, func(d departed) bool {
		if wait := d.close.Sub(now); wait > 0 {
			next = min(next, wait)
			return false
		}
		_ = d.peer.Conn.Close()
		return true
	})
	return next
}

func (s *Set) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.left {
		_ = d.peer.Conn.Close()
	}
	for _, p := range s.peers {
		_ = p.Conn.Close()
	}
	s.left, s.peers = nil, map[string]*Peer{}
	close(s.changed)
	s.changed = make(chan struct{})
}
