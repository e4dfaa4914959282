package worker

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/gpu/runner"
	"leasehold.dev/protos/errs"
)

// scrape returns every number as name{labels} = value; of a histogram, its count.
func scrape(t *testing.T, r sdk.Reader) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	out := map[string]int64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					out[m.Name+p.Attributes.Encoded(attribute.DefaultEncoder())] = p.Value
				}
			case metricdata.Gauge[int64]:
				for _, p := range d.DataPoints {
					out[m.Name+p.Attributes.Encoded(attribute.DefaultEncoder())] = p.Value
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					out[m.Name+p.Attributes.Encoded(attribute.DefaultEncoder())] = int64(p.Count)
				}
			default:
				t.Fatalf("%s is a %T", m.Name, d)
			}
		}
	}
	return out
}

func TestMetrics(t *testing.T) {
	reader := sdk.NewManualReader()
	m, err := newMetrics(sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("test"), func() gauges {
		return gauges{waiting: 1, tokens: 2, running: 3, limit: 4, promise: 5, guards: 1, attached: 1}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	m.step(runner.Stats{Prompt: 64, Decode: 3})
	m.step(runner.Stats{Decode: 2, Faults: []engine.Fault{{Kind: engine.FaultRead}, {Kind: engine.FaultWrite}, {Kind: engine.FaultRead}}})
	h := &Host[*handle]{metrics: m}
	for _, err := range []error{
		nil, context.Canceled, fmt.Errorf("late: %w", context.DeadlineExceeded), errs.New(errs.Corrupt, "a digest differs"), errors.New("a bug"),
	} {
		h.Ended(err)
	}
	want := map[string]int64{
		MetricSteps: 2, MetricTokens + "phase=prompt": 64, MetricTokens + "phase=decode": 5, MetricStepTime: 2,
		MetricFaults + "kind=read": 2, MetricFaults + "kind=write": 1,
		MetricRequests + "outcome=ok": 1, MetricRequests + "outcome=canceled": 1, MetricRequests + "outcome=deadline": 1,
		MetricRequests + "outcome=corrupt": 1, MetricRequests + "outcome=internal": 1,
		MetricWaiting: 1, MetricWaitToken: 2, MetricRunning: 3, MetricLimit + "number=derived": 4, MetricLimit + "number=promised": 5,
		MetricGuards: 1, MetricAttached: 1,
	}
	if d := cmp.Diff(want, scrape(t, reader)); d != "" {
		t.Errorf("metrics differ (-want +got):\n%s", d)
	}
}
