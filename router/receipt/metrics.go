package receipt

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Names. Reports are P1 events: an alert fires while one is open.
const (
	Kept      = "leasehold_router_receipts"         // gauge
	KeptBytes = "leasehold_router_receipt_bytes"    // gauge
	NotKept   = "leasehold_router_receipts_dropped" // count; limit: age, count, bytes
	Reports   = "leasehold_router_reports"          // count; change, replay
	OpenNow   = "leasehold_router_reports_open"     // gauge
)

// Metrics are of a store and a desk. The zero value records nothing until Register.
type Metrics struct{ reports metric.Int64Counter }

// Register makes the instruments, once.
func (m *Metrics) Register(in metric.Meter, s *Store, d *Desk) error {
	var failed error
	keep := func(err error) {
		if failed == nil {
			failed = err
		}
	}
	var err error
	m.reports, err = in.Int64Counter(Reports, metric.WithDescription("Changes of tenants' reports about answers. Each opened one is a P1 event."))
	keep(err)
	kept, err := in.Int64ObservableGauge(Kept, metric.WithDescription("Receipts that tenants can ask for."))
	keep(err)
	bytes, err := in.Int64ObservableGauge(KeptBytes, metric.WithDescription("Bytes of these."))
	keep(err)
	dropped, err := in.Int64ObservableCounter(NotKept, metric.WithDescription("Receipts that are no longer kept, by the limit they were over."))
	keep(err)
	open, err := in.Int64ObservableGauge(OpenNow, metric.WithDescription("Reports that no person has closed yet."))
	keep(err)
	if failed != nil {
		return failed
	}
	_, err = in.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		n, b, gone := s.Size()
		o.ObserveInt64(kept, int64(n))
		o.ObserveInt64(bytes, b)
		for limit, v := range map[string]int64{"age": gone.Age, "count": gone.Count, "bytes": gone.Bytes} {
			o.ObserveInt64(dropped, v, metric.WithAttributes(attribute.String("limit", limit)))
		}
		o.ObserveInt64(open, int64(d.Len()))
		return nil
	}, kept, bytes, dropped, open)
	return err
}

// Report counts a change.
func (m *Metrics) Report(what Change, r Report) {
	if m.reports != nil {
		m.reports.Add(context.Background(), 1, metric.WithAttributes(attribute.String("change", string(what)), attribute.String("replay", r.Replay)))
	}
}
