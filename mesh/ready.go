package mesh

import (
	"context"
	"strings"
	"sync"
	"time"

	"leasehold.dev/protos/errs"
)

// checkTime is the most that one readiness check may take.
const checkTime = time.Second

// readiness is the checks of a process. Draining is the one reason that never goes away.
type readiness struct {
	mu       sync.Mutex
	checks   []namedCheck
	draining bool
}

type namedCheck struct {
	name string
	f    func(context.Context) error
}

// verdict is what /readyz shows.
type verdict struct {
	Ready    bool     `json:"ready"`
	Draining bool     `json:"draining"`
	Checks   []result `json:"checks"`
}

type result struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Reason string `json:"reason,omitempty"`
}

func (r *readiness) add(name string, f func(context.Context) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checks = append(r.checks, namedCheck{name, f})
}

func (r *readiness) drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.draining = true
}

// look runs every check, in the order in which they were added. A check that panics is one that failed.
func (r *readiness) look(ctx context.Context) verdict {
	r.mu.Lock()
	checks, draining := r.checks, r.draining
	r.mu.Unlock()
	v := verdict{Ready: !draining, Draining: draining, Checks: []result{}}
	for _, c := range checks {
		res := result{Name: c.name, OK: true}
		if err := c.run(ctx); err != nil {
			res.OK, res.Reason, v.Ready = false, err.Error(), false
		}
		v.Checks = append(v.Checks, res)
	}
	return v
}

func (c namedCheck) run(ctx context.Context) (err error) {
	defer func() {
		if recover() != nil {
			err = errs.New(errs.Internal, "the check panicked")
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	return c.f(ctx)
}

// err says in one line why the process is not ready; nil: it is.
func (v verdict) err() error {
	if v.Ready {
		return nil
	}
	var why []string
	if v.Draining {
		why = append(why, "draining")
	}
	for _, c := range v.Checks {
		if !c.OK {
			why = append(why, c.Name+": "+c.Reason)
		}
	}
	return errs.New(errs.Unavailable, "%s", strings.Join(why, "; "))
}
