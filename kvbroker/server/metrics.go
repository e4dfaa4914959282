package server

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"leasehold.dev/kvbroker/lease"
	"leasehold.dev/kvbroker/mover"
	"leasehold.dev/protos/errs"
)

// Names of the broker's metrics.
const (
	MetricPages       = "leasehold_broker_pages"                // gauge by state: pages of the pool
	MetricQuarantine  = "leasehold_broker_quarantine_cap_pages" // gauge: with more than this in quarantine nothing is granted
	MetricWithheld    = "leasehold_broker_withheld"             // gauge: cleared pages kept back after a late write
	MetricLeases      = "leasehold_broker_leases"               // gauge by role and state
	MetricWorkers     = "leasehold_broker_workers"              // gauge: attached processes
	MetricPulls       = "leasehold_broker_pulls"                // gauge: parked or running, at the sending side
	MetricSendBuffers = "leasehold_broker_send_buffers"         // gauge: not given back by the transport
	MetricLeaseEvents = "leasehold_broker_lease_events"         // counter by event and role
	MetricPullBytes   = "leasehold_broker_pull_bytes"           // counter: page bytes that arrived
	MetricRefused     = "leasehold_broker_refused"              // counter by what and kind
	MetricIncidents   = "leasehold_broker_incidents"            // counter by kind: late_write, transfer, source, fault, epoch
	MetricFaults      = "leasehold_broker_faults"               // counter by explained: fault records of workers
)

type metrics struct {
	leaseEvents, pullBytes, refusals, incidents, faultRecords metric.Int64Counter
	unregister                                                func() error
}

func newMetrics(m metric.Meter, b *Broker) (*metrics, error) {
	out := &metrics{}
	var all []error
	counter := func(to *metric.Int64Counter, name, unit, text string) {
		var err error
		*to, err = m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(text))
		all = append(all, err)
	}
	counter(&out.leaseEvents, MetricLeaseEvents, "{event}", "What became of leases.")
	counter(&out.pullBytes, MetricPullBytes, "By", "Page bytes that arrived.")
	counter(&out.refusals, MetricRefused, "{request}", "Requests that were refused or failed.")
	counter(&out.incidents, MetricIncidents, "{incident}", "Checks that found what must not be.")
	counter(&out.faultRecords, MetricFaults, "{fault}", "Fault records of workers.")
	var gauges []metric.Observable
	gauge := func(name, text string) metric.Int64ObservableGauge {
		g, err := m.Int64ObservableGauge(name, metric.WithDescription(text))
		all = append(all, err)
		gauges = append(gauges, g)
		return g
	}
	quarantine := gauge(MetricQuarantine, "Pages in quarantine above which nothing is granted.")
	pages, withheld := gauge(MetricPages, "Pages of the pool, by state."), gauge(MetricWithheld, "Pages kept back after a late write.")
	leases, workers := gauge(MetricLeases, "Live leases."), gauge(MetricWorkers, "Attached processes.")
	pulls, buffers := gauge(MetricPulls, "Pulls that are parked or running."), gauge(MetricSendBuffers, "Send buffers in flight.")
	if err := errors.Join(all...); err != nil {
		return nil, err
	}
	reg, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		b.mu.Lock()
		snap, kept, parked := b.table.Snapshot(), len(b.withheld), len(b.parked)
		b.mu.Unlock()
		for s, n := range snap.States {
			o.ObserveInt64(pages, int64(n), metric.WithAttributes(attribute.String("state", lease.State(s).String())))
		}
		for k, n := range countLeases(snap.Leases) {
			o.ObserveInt64(leases, n, metric.WithAttributes(attribute.String("role", k.role.String()), attribute.String("state", k.state.String())))
		}
		o.ObserveInt64(withheld, int64(kept))
		o.ObserveInt64(quarantine, int64(snap.QuarantineCap))
		o.ObserveInt64(workers, int64(len(snap.Workers)))
		o.ObserveInt64(pulls, int64(parked))
		o.ObserveInt64(buffers, mover.SendBuffersOut())
		return nil
	}, gauges...)
	if err != nil {
		return nil, err
	}
	out.unregister = reg.Unregister
	return out, nil
}

type leaseClass struct {
	role  lease.Role
	state lease.State
}

// countLeases has every class, so that one that empties goes to zero instead of away.
func countLeases(leases []lease.Info) map[leaseClass]int64 {
	n := map[leaseClass]int64{}
	for r := lease.Solo; r <= lease.Source; r++ {
		for s := lease.Reserved; int(s) < lease.States; s++ {
			n[leaseClass{r, s}] = 0
		}
	}
	for _, l := range leases {
		n[leaseClass{l.Role, l.State}]++
	}
	return n
}

func (m *metrics) close() { _ = m.unregister() }

func (m *metrics) lease(r lease.Record) {
	m.leaseEvents.Add(context.Background(), 1, metric.WithAttributes(attribute.String("event", r.Kind.String()), attribute.String("role", r.Role.String())))
}

func (m *metrics) pulled(n uint64) { m.pullBytes.Add(context.Background(), int64(n)) }

func (m *metrics) refused(what string, err error) {
	m.refusals.Add(context.Background(), 1, metric.WithAttributes(attribute.String("what", what), attribute.String("kind", errs.KindOf(err).String())))
}

func (m *metrics) incident(kind string) {
	m.incidents.Add(context.Background(), 1, metric.WithAttributes(attribute.String("kind", kind)))
}

func (m *metrics) faults(n int, explained bool) {
	m.faultRecords.Add(context.Background(), int64(n), metric.WithAttributes(attribute.Bool("explained", explained)))
}
