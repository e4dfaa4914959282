package server

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"leasehold.dev/kvbroker/lease"
	"leasehold.dev/protos/errs"
)

// maxSpent bounds the memory for admissions that were served; at a deadline of a minute that is 1,000 leases a second.
const maxSpent = 1 << 16

// use is one role of one admission.
type use struct {
	admission lease.Admission
	role      lease.Role
}

// spent remembers what a lease was granted for until the admission's deadline, after which it is refused as late: a
// ticket is good for one lease of a role, also when that lease has ended. Over maxSpent it forgets the half that ends
// first. The Broker's mu guards it.
type spent struct {
	until map[use]time.Time
	sweep int // size at which to look for what has passed
}

const firstSweep = 1024

func newSpent() spent { return spent{until: map[use]time.Time{}, sweep: firstSweep} }

// check is Invalid when a lease was granted for u.
func (s *spent) check(u use) error {
	if _, ok := s.until[u]; ok {
		return errs.New(errs.Invalid, "reserve: admission %s has had a %v lease: it is good for one", u.admission, u.role)
	}
	return nil
}

func (s *spent) add(u use, until, now time.Time) {
	if len(s.until) >= s.sweep {
		maps.DeleteFunc(s.until, func(_ use, t time.Time) bool { return !t.After(now) })
		if len(s.until) >= maxSpent {
			s.halve()
		}
		s.sweep = min(max(2*len(s.until), firstSweep), maxSpent)
	}
	s.until[u] = until
}

func (s *spent) halve() {
	all := slices.SortedFunc(maps.Keys(s.until), func(a, b use) int {
		return cmp.Compare(s.until[a].UnixNano(), s.until[b].UnixNano())
	})
	for _, u := range all[:len(all)/2] {
		delete(s.until, u)
	}
}

// undo is for a lease that no worker ever heard of.
func (s *spent) undo(u use) { delete(s.until, u) }
