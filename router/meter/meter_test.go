package meter_test

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"leasehold.dev/router/meter"
)

func TestEveryMetricIsRecordedUnderItsName(t *testing.T) {
	r := metric.NewManualReader()
	m, err := meter.New(metric.NewMeterProvider(metric.WithReader(r)).Meter("router"), func() (int64, int64, int64) { return 1, 2, 900 })
	if err != nil {
		t.Fatal(err)
	}
	m.Refused("completions")
	m.Started()
	m.Ended("completions", "ok", time.Second, 2*time.Second)
	m.Route("split:grpc")
	m.Disagreement("decode.root")
	m.Retry("taken")
	m.Verified(200, 7, 4)
	var data metricdata.ResourceMetrics
	if err := r.Collect(context.Background(), &data); err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, s := range data.ScopeMetrics {
		for _, one := range s.Metrics {
			have[one.Name] = true
			if sum, ok := one.Data.(metricdata.Sum[int64]); ok && one.Name == meter.Tokens {
				if total := sum.DataPoints[0].Value + sum.DataPoints[1].Value; total != 207 {
					t.Errorf("%d tokens, want 207", total)
				}
			}
		}
	}
	for _, name := range []string{meter.Requests, meter.Routes, meter.Disagreements, meter.Retries, meter.FirstToken, meter.Duration, meter.Tokens, meter.PagesMoved, meter.Active, meter.ReadyPairs, meter.Limit} {
		if !have[name] {
			t.Errorf("%s was not recorded; have %v", name, have)
		}
	}
}

func TestTheZeroMeterRecordsNothing(t *testing.T) {
	var m meter.Meter
	m.Refused("x")
	m.Started()
	m.Ended("x", "ok", time.Second, time.Second)
	m.Route("x")
	m.Disagreement("x")
	m.Retry("x")
	m.Verified(1, 1, 1)
}
