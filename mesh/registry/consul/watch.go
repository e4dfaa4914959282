package consul

import (
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"leasehold.dev/mesh/registry"
	"leasehold.dev/mesh/registry/internal/hold"
	"leasehold.dev/mesh/registry/internal/retry"
)

// wait is how long Consul may hold a blocking query that has no news.
const wait = 30 * time.Second

// Watch implements registry.Registry.
func (r *Registry) Watch(ctx context.Context, service string) (<-chan []registry.Instance, error) {
	if err := registry.ValidateService(service); err != nil {
		return nil, err
	}
	feed := hold.New(2 * r.ttl)
	go func() {
		defer feed.Close()
		back := retry.Backoff{Min: 50 * time.Millisecond, Max: time.Second}
		var index uint64
		for {
			set, next, err := r.query(ctx, service, index)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				index = 0 // a restarted agent may count from anywhere
				feed.Lost()
				r.log.DebugContext(ctx, "health query failed", "watched", service, "error", err.Error())
				if back.Wait(ctx) != nil {
					return
				}
				continue
			}
			back.Reset()
			index = advance(index, next)
			feed.Heard(set)
		}
	}()
	return feed.C(), nil
}

// advance is the index to wait for: never one that went backwards, and never 0 twice in a row without a pause, since
// Consul answers index 0 at once.
func advance(old, next uint64) uint64 {
	if next < old {
		return 0
	}
	return max(next, 1)
}

func (r *Registry) query(ctx context.Context, service string, index uint64) ([]registry.Instance, uint64, error) {
	q := (&api.QueryOptions{WaitIndex: index, WaitTime: wait, AllowStale: false}).WithContext(ctx)
	entries, meta, err := r.api.Health().Service(service, "", true, q)
	if err != nil {
		return nil, 0, away(err)
	}
	return instances(service, entries), meta.LastIndex, nil
}

// List is who is in the registry now, passing or not, sorted by id.
func (r *Registry) List(ctx context.Context, service string) ([]registry.Listed, error) {
	if err := registry.ValidateService(service); err != nil {
		return nil, err
	}
	entries, _, err := r.api.Health().Service(service, "", false, (&api.QueryOptions{}).WithContext(ctx))
	if err != nil {
		return nil, away(err)
	}
	var all []registry.Listed
	for _, in := range instances(service, entries) {
		passes := slices.ContainsFunc(entries, func(e *api.ServiceEntry) bool {
			return e.Service.ID == entryID(in) && e.Checks.AggregatedStatus() == api.HealthPassing
		})
		all = append(all, registry.Listed{Instance: in, Passing: passes})
	}
	return all, nil
}

// instances are the entries that this package registered. Two agents can each have an entry of one id; then the first
// address stands for it, always the same one.
func instances(service string, entries []*api.ServiceEntry) []registry.Instance {
	var set []registry.Instance
	for _, e := range entries {
		id, ours := strings.CutPrefix(e.Service.ID, service+":")
		if !ours {
			continue
		}
		host := e.Service.Address
		if host == "" {
			host = e.Node.Address
		}
		in := registry.Instance{Service: service, ID: id, Address: net.JoinHostPort(host, strconv.Itoa(e.Service.Port)), Meta: e.Service.Meta}
		if registry.Validate(in) == nil {
			set = append(set, in)
		}
	}
	slices.SortFunc(set, func(a, b registry.Instance) int {
		if c := registry.Compare(a, b); c != 0 {
			return c
		}
		return strings.Compare(a.Address, b.Address)
	})
	return slices.CompactFunc(set, func(a, b registry.Instance) bool { return registry.Compare(a, b) == 0 })
}
