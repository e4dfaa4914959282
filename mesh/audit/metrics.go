package audit

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"leasehold.dev/protos/errs"
)

// Names of a log's metrics.
const (
	MetricRecords  = "leasehold_audit_records"          // counter by kind: records written
	MetricLost     = "leasehold_audit_lost"             // counter: records that are in no file and will not be
	MetricFailures = "leasehold_audit_write_failures"   // counter: tries to write or sign that failed
	MetricUnsigned = "leasehold_audit_unsigned_seconds" // gauge: age of the oldest record without a signed head
	MetricOn       = "leasehold_audit_on"               // gauge: 1 with a log, 0 without; the mesh's, as a process without a log has none of the others
)

type metrics struct {
	records, losses, failures metric.Int64Counter
	kinds                     map[string]metric.MeasurementOption // of the owner goroutine
	callback                  metric.Registration
}

func newMetrics(m metric.Meter, l *Log) (*metrics, error) {
	out := &metrics{kinds: map[string]metric.MeasurementOption{}}
	var failed error
	for _, c := range []struct {
		to         *metric.Int64Counter
		name, text string
	}{
		{&out.records, MetricRecords, "Records written to the audit log."},
		{&out.losses, MetricLost, "Records that found no room while the audit log could not be written."},
		{&out.failures, MetricFailures, "Tries to write or sign the audit log that failed."},
	} {
		var err error
		if *c.to, err = m.Int64Counter(c.name, metric.WithDescription(c.text)); err != nil {
			failed = err
		}
	}
	age, err := m.Float64ObservableGauge(MetricUnsigned, metric.WithUnit("s"), metric.WithDescription("Age of the oldest record without a signed head."))
	if failed != nil || err != nil {
		return nil, errs.New(errs.Internal, "audit: metrics: %w, %w", failed, err)
	}
	out.callback, err = m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		o.ObserveFloat64(age, l.unsignedFor(time.Now()).Seconds())
		return nil
	}, age)
	return out, errs.Mark(err, errs.Internal)
}

func (l *Log) unsignedFor(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unsigned.IsZero() {
		return 0
	}
	return max(now.Sub(l.unsigned), 0)
}

func (m *metrics) wrote(batch []pending) {
	for _, p := range batch {
		kind, ok := m.kinds[p.kind]
		if !ok {
			kind = metric.WithAttributes(attribute.String("kind", p.kind))
			m.kinds[p.kind] = kind
		}
		m.records.Add(context.Background(), 1, kind)
	}
}

func (m *metrics) lose() { m.losses.Add(context.Background(), 1) }
func (m *metrics) fail() { m.failures.Add(context.Background(), 1) }

func (m *metrics) close() {
	if m.callback != nil {
		_ = m.callback.Unregister()
	}
}
