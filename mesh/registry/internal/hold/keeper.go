// Package hold keeps the last good set of a service while its registry is away, and for a time after it came back: a
// registry that restarted knows nobody until the next beats, and must not empty the mesh in between.
package hold

import (
	"slices"
	"time"

	"leasehold.dev/mesh/registry"
)

// keeper is the rule, without clock or goroutine.
type keeper struct {
	span time.Duration

	heard  bool
	lost   bool
	until  time.Time           // end of the span in which held instances are shown
	held   []registry.Instance // shown when contact was lost
	latest []registry.Instance // what the registry says now
}

// lose notes that contact is lost at a time.
func (k *keeper) lose(now time.Time) {
	k.show(now) // what was held until then is not held on
	k.lost = k.heard
}

// hear takes the registry's set at a time.
func (k *keeper) hear(now time.Time, set []registry.Instance) {
	if k.lost {
		k.held, k.until = k.show(now), now.Add(k.span)
	}
	k.heard, k.lost = true, false
	k.latest = slices.SortedFunc(slices.Values(set), registry.Compare)
}

// show is the set at a time: what the registry says, and of the held instances those that it does not name. Nothing is
// dropped while contact is lost, not even by the end of an earlier span.
func (k *keeper) show(now time.Time) []registry.Instance {
	if len(k.held) == 0 || !k.lost && !now.Before(k.until) {
		k.held = nil
		return k.latest
	}
	all := slices.Clone(k.latest)
	for _, in := range k.held {
		_, found := slices.BinarySearchFunc(k.latest, in, registry.Compare)
		if !found {
			all = append(all, in)
		}
	}
	slices.SortFunc(all, registry.Compare)
	return all
}

func same(a, b []registry.Instance) bool {
	return slices.EqualFunc(a, b, registry.Instance.Equal)
}
