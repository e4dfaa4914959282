package probe_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"leasehold.dev/cli/probe"
	"leasehold.dev/mesh/boundary"
	"leasehold.dev/model/canary"
)

// recorder is a real one whose clock the test turns.
type recorder struct {
	*boundary.Recorder
	t      *testing.T
	now    time.Time
	reader *sdkmetric.ManualReader
}

func newRecorder(t *testing.T) *recorder {
	r := &recorder{t: t, now: time.Unix(1000, 0), reader: sdkmetric.NewManualReader()}
	m := sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.reader)).Meter("test")
	var err error
	if r.Recorder, err = boundary.New(m, func() time.Time { return r.now }); err != nil {
		t.Fatal(err)
	}
	return r
}

// incidents are the counters above 0.
func (r *recorder) incidents() (out []string) {
	r.t.Helper()
	var rm metricdata.ResourceMetrics
	if err := r.reader.Collect(r.t.Context(), &rm); err != nil {
		r.t.Fatal(err)
	}
	for _, s := range rm.ScopeMetrics {
		for _, m := range s.Metrics {
			sum, ok := m.Data.(metricdata.Sum[int64])
			for i := 0; ok && i < len(sum.DataPoints); i++ {
				p := sum.DataPoints[i]
				prop, _ := p.Attributes.Value(attribute.Key(boundary.LabelProperty))
				det, _ := p.Attributes.Value(attribute.Key(boundary.LabelDetector))
				if p.Value > 0 {
					out = append(out, fmt.Sprintf("%s %s %d", prop.AsString(), det.AsString(), p.Value))
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

// looked are the properties whose clock is at now.
func (r *recorder) looked(pair string) (out []string) {
	for _, d := range []boundary.Detector{boundary.Canary, boundary.NegativeCanary} {
		for _, p := range boundary.Properties {
			if at, ok := r.Last(p, d, pair); ok && at.Equal(r.now) {
				out = append(out, string(p)+" "+string(d))
			}
		}
	}
	return out
}

func TestRecord(t *testing.T) {
	echo, over := probe.Check{Want: probe.Echo}, probe.Check{Want: probe.Limit}
	leak := canary.Verdict{}
	leak.Foreign[3] = 2
	both, neg := []string{"P1 canary", "P2 canary"}, []string{"P3 negative_canary", "P5 negative_canary"}
	for _, c := range []struct {
		name              string
		row               probe.Row
		looked, incidents []string
	}{
		{"an echo", probe.Row{Check: echo, OK: true, Told: true}, both, nil},
		{"a wrong echo", probe.Row{Check: echo, Told: true}, both, []string{"P1 canary 1"}},
		{"another tenant's echo", probe.Row{Check: echo, Told: true, Verdict: leak}, both, []string{"P1 canary 1", "P2 canary 1"}},
		{"no echo", probe.Row{Check: echo}, nil, nil},
		{"a refusal", probe.Row{Check: over, OK: true, Told: true}, neg, nil},
		{"served over the limit", probe.Row{Check: over, Told: true}, neg, []string{"P3 negative_canary 1", "P5 negative_canary 1"}},
		{"nobody refuses", probe.Row{Check: over}, nil, nil},
		{"a gone pair", probe.Row{Check: probe.Gone(), OK: true, Told: true}, nil, nil},
		{"a gone pair that serves", probe.Row{Check: probe.Gone(), Told: true}, nil, []string{"P3 negative_canary 1"}},
	} {
		r := newRecorder(t)
		probe.Expect(r.Recorder, "p/d")
		if got := r.looked("p/d"); len(got) != 4 {
			t.Fatalf("%s: expected are %v", c.name, got)
		}
		r.now = r.now.Add(time.Minute)
		c.row.Pair = "p/d"
		probe.Record(r.Recorder, c.row)
		if got := r.looked("p/d"); !slices.Equal(got, c.looked) {
			t.Errorf("%s: looked at %v, want %v", c.name, got, c.looked)
		}
		if got := r.incidents(); !slices.Equal(got, c.incidents) {
			t.Errorf("%s: incidents %v, want %v", c.name, got, c.incidents)
		}
	}
	probe.Record(nil, probe.Row{Check: echo, Told: true}) // nobody asked for metrics
}
