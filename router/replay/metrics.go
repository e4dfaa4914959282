package replay

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Names. When a pair was last verified is boundary.LastObserved, and incidents are boundary.Incidents.
const (
	Taken   = "leasehold_router_replays_taken"   // count of jobs; why: longest, sampled
	Ran     = "leasehold_router_replays"         // count of runs; result
	Dropped = "leasehold_router_replays_dropped" // count of jobs; why: full, no_worker, lost
	Spent   = "leasehold_router_replay_tokens"   // count: what replays computed
	Queued  = "leasehold_router_replays_waiting" // gauge
	Bytes   = "leasehold_router_replay_bytes"    // gauge: what waits
)

// Metrics record. The zero value, and nil, record nothing.
type Metrics struct{ jobs, runs, drops, tokens metric.Int64Counter }

// NewMetrics makes the instruments. waiting is asked at each scrape.
func NewMetrics(m metric.Meter, waiting func() (jobs int, bytes int64)) (*Metrics, error) {
	out := &Metrics{}
	var failed error
	keep := func(err error) {
		if failed == nil {
			failed = err
		}
	}
	counter := func(name, text string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithDescription(text))
		keep(err)
		return c
	}
	out.jobs = counter(Taken, "Answers that are to be run again.")
	out.runs = counter(Ran, "Runs of replays. Each different or broken one is an incident.")
	out.drops = counter(Dropped, "Replays that were given up.")
	out.tokens = counter(Spent, "Tokens that replays computed.")
	queued, err := m.Int64ObservableGauge(Queued, metric.WithDescription("Replays that wait."))
	keep(err)
	bytes, err := m.Int64ObservableGauge(Bytes, metric.WithDescription("Bytes of the replays that wait."))
	keep(err)
	if failed != nil {
		return nil, failed
	}
	_, err = m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		jobs, b := waiting()
		o.ObserveInt64(queued, int64(jobs))
		o.ObserveInt64(bytes, b)
		return nil
	}, queued, bytes)
	return out, err
}

func (m *Metrics) add(c func(*Metrics) metric.Int64Counter, key, value string) {
	if m != nil && c(m) != nil {
		c(m).Add(context.Background(), 1, metric.WithAttributes(attribute.String(key, value)))
	}
}

func (m *Metrics) taken(why Reason) {
	m.add(func(m *Metrics) metric.Int64Counter { return m.jobs }, "why", string(why))
}

func (m *Metrics) dropped(why Reason) {
	m.add(func(m *Metrics) metric.Int64Counter { return m.drops }, "why", string(why))
}

func (m *Metrics) ended(s Seen) {
	m.add(func(m *Metrics) metric.Int64Counter { return m.runs }, "result", string(s.Result))
	if m != nil && m.tokens != nil && s.New > 0 {
		m.tokens.Add(context.Background(), int64(s.Prompt)+int64(s.New))
	}
}
