// Package limits looks, at every change of the fleet and every few seconds, whether a promise is above a derived limit. The
// router admits by each pair's own numbers whatever this finds: it is the detector of property P5, not its guard.
package limits

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"leasehold.dev/mesh/boundary"
	"leasehold.dev/router/choose"
)

// Gaps is the name of a gauge by service: promises that are above a derived limit now.
const Gaps = "leasehold_router_limit_gaps"

// Every is the pause between two looks when nothing changes.
const Every = 5 * time.Second

// Fleet is what is looked at.
type Fleet interface {
	// Changed is closed at the next change.
	Changed() <-chan struct{}
	Snapshot() choose.Fleet
}

// Checker is the live check. Make one with New, run it with Run.
type Checker struct {
	fleet Fleet
	model choose.Model
	bound *boundary.Recorder
	log   *slog.Logger

	mu   sync.Mutex
	gaps []choose.Gap // as of the last look
}

// New makes the gauge on m.
func New(f Fleet, model choose.Model, m metric.Meter, b *boundary.Recorder, log *slog.Logger) (*Checker, error) {
	c := &Checker{fleet: f, model: model, bound: b, log: log}
	_, err := m.Int64ObservableGauge(Gaps, metric.WithDescription("Promises that are above a derived limit now."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			for service, n := range c.count() {
				o.Observe(n, metric.WithAttributes(attribute.String("service", service)))
			}
			return nil
		}))
	return c, err
}

func (c *Checker) count() map[string]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := map[string]int64{"prefill": 0, "decode": 0, "router": 0}
	for _, g := range c.gaps {
		n[g.Service]++
	}
	return n
}

// Run looks until ctx ends.
func (c *Checker) Run(ctx context.Context) {
	c.bound.Expect(boundary.P5, boundary.Limits, "")
	tick := time.NewTicker(Every)
	defer tick.Stop()
	for {
		changed := c.fleet.Changed()
		c.look()
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// look counts each gap once, when it opens. A look that could not tell everything is none.
func (c *Checker) look() {
	gaps, known := choose.Gaps(c.fleet.Snapshot(), c.model)
	c.mu.Lock()
	before := c.gaps
	c.gaps = gaps
	c.mu.Unlock()
	for _, g := range gaps {
		if !slices.Contains(before, g) {
			c.bound.Incident(boundary.P5, boundary.Limits, fmt.Sprintf("%s %s promises %d, derived %d", g.Service, g.ID, g.Promised, g.Derived))
			c.log.Error("incident: a promise is above a derived limit", "service", g.Service, "worker", g.ID, "promised", g.Promised, "derived", g.Derived)
		}
	}
	for _, g := range before {
		if !slices.Contains(gaps, g) {
			c.log.Info("a promise fits again, or is gone", "service", g.Service, "worker", g.ID, "promised", g.Promised, "derived", g.Derived)
		}
	}
	if known {
		c.bound.Observed(boundary.P5, boundary.Limits, "")
	}
}
