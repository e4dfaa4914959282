package rpc

import (
	"context"
	"slices"
	"sync"

	"leasehold.dev/mesh/identity"
	"leasehold.dev/protos/errs"
)

// Anyone stands for every identity of the trust domain.
const Anyone = "*"

// Guard decides who may call what: whatever it has no rule for is denied. It is safe for concurrent use.
type Guard struct {
	mu    sync.RWMutex
	rules map[string][]string
}

// Allow lets callers of services call method, a full name such as /leasehold.mesh.v1.RegistryService/Beat.
func (g *Guard) Allow(method string, services ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.rules == nil {
		g.rules = map[string][]string{}
	}
	g.rules[method] = append(g.rules[method], services...)
}

// Methods is the methods that somebody may call, sorted.
func (g *Guard) Methods() []string {
	g.mu.RLock()
	defer g.mu.RUnlock()
	var ms []string
	for m := range g.rules {
		ms = append(ms, m)
	}
	slices.Sort(ms)
	return ms
}

// Knows reports whether method has a rule.
func (g *Guard) Knows(method string) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return len(g.rules[method]) > 0
}

// Check is nil if the caller that ctx names may call method. A loopback caller without TLS has no name: it may call
// whatever somebody may.
func (g *Guard) Check(ctx context.Context, method string) error {
	g.mu.RLock()
	services := g.rules[method]
	g.mu.RUnlock()
	if len(services) == 0 {
		return errs.New(errs.Denied, "nobody may call %s", method)
	}
	if identity.IsPlain(ctx) {
		return nil
	}
	service, _, ok := identity.Peer(ctx)
	if !ok {
		return errs.New(errs.Denied, "caller of %s has no identity", method)
	}
	if !slices.Contains(services, service) && !slices.Contains(services, Anyone) {
		return errs.New(errs.Denied, "%s may not call %s", service, method)
	}
	return nil
}
