package embedded

import (
	"slices"
	"time"

	"leasehold.dev/mesh/registry"
	"leasehold.dev/protos/errs"
)

// The bounds of what a caller may ask for.
const (
	minTTL  = 100 * time.Millisecond
	maxTTL  = 5 * time.Minute
	maxRows = 4096
)

type key struct{ service, id string }

type row struct {
	in      registry.Instance
	expires time.Time
	passing bool
}

// table is who beats, without clock or goroutine.
type table map[key]row

// beat notes a beat. It reports whether a passing set changed; after an error nothing did.
func (t table) beat(now time.Time, in registry.Instance, ttl time.Duration, passing bool) (changed bool, err error) {
	if err := registry.Validate(in); err != nil {
		return false, err
	}
	if ttl < minTTL || ttl > maxTTL {
		return false, errs.New(errs.Invalid, "ttl is %v, allowed are %v to %v", ttl, minTTL, maxTTL)
	}
	k := key{in.Service, in.ID}
	old, known := t[k]
	if !known && len(t) >= maxRows {
		return false, errs.New(errs.Exhausted, "registry holds %d instances and takes no more", len(t))
	}
	t[k] = row{in: in, expires: now.Add(ttl), passing: passing}
	return old.passing != passing || passing && !old.in.Equal(in), nil
}

// leave removes an instance; an unknown one changes nothing.
func (t table) leave(service, id string) (changed bool) {
	old := t[key{service, id}]
	delete(t, key{service, id})
	return old.passing
}

// expire removes what did not beat in time.
func (t table) expire(now time.Time) (changed bool) {
	for k, r := range t {
		if !now.Before(r.expires) {
			delete(t, k)
			changed = changed || r.passing
		}
	}
	return changed
}

// next is when something expires; zero: never.
func (t table) next() time.Time {
	var first time.Time
	for _, r := range t {
		if first.IsZero() || r.expires.Before(first) {
			first = r.expires
		}
	}
	return first
}

// passing is the passing set of service, sorted; of all services if it is empty.
func (t table) passing(service string) []registry.Instance {
	set := []registry.Instance{}
	for k, r := range t {
		if r.passing && (service == "" || k.service == service) {
			set = append(set, r.in)
		}
	}
	slices.SortFunc(set, registry.Compare)
	return set
}

// listed is everybody of service who beats, sorted; of all services if it is empty.
func (t table) listed(service string) []registry.Listed {
	var all []registry.Listed
	for k, r := range t {
		if service == "" || k.service == service {
			all = append(all, registry.Listed{Instance: r.in, Passing: r.passing})
		}
	}
	slices.SortFunc(all, func(a, b registry.Listed) int { return registry.Compare(a.Instance, b.Instance) })
	return all
}
