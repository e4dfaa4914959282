package meter

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Names. A tenant's name is no label: tenants are unbounded.
const (
	Requests      = "leasehold_router_requests"             // count; endpoint, outcome (record.Outcome)
	Routes        = "leasehold_router_routes"               // count of admissions; route (choose.Why)
	Disagreements = "leasehold_router_disagreements"        // count; field (verdict.Disagreement, or refused_limit, finished)
	Retries       = "leasehold_router_retries"              // count; result: taken, no_budget, no_pair
	FirstToken    = "leasehold_router_first_token_seconds"  // histogram, from the request's arrival
	Duration      = "leasehold_router_request_seconds"      // histogram
	Tokens        = "leasehold_router_tokens"               // count, verified; kind: prompt, completion
	PagesMoved    = "leasehold_router_pages_moved"          // count, verified
	Active        = "leasehold_router_active_requests"      // gauge
	ReadyPairs    = "leasehold_router_workers_up"           // gauge; service: prefill, decode
	Limit         = "leasehold_router_context_limit_tokens" // gauge: the effective limit
)

// Meter records. The zero value records nothing.
type Meter struct {
	requests, routes, disagreements, retries, tokens, pages metric.Int64Counter
	active                                                  metric.Int64UpDownCounter
	first, duration                                         metric.Float64Histogram
}

// New makes the instruments. gauges is asked at each scrape.
func New(m metric.Meter, gauges func() (prefill, decode, limit int64)) (*Meter, error) {
	out := &Meter{}
	var err error
	counter := func(name, unit, text string) metric.Int64Counter {
		c, e := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(text))
		err = first(err, e)
		return c
	}
	histogram := func(name, text string, bounds ...float64) metric.Float64Histogram {
		h, e := m.Float64Histogram(name, metric.WithDescription(text), metric.WithExplicitBucketBoundaries(bounds...))
		err = first(err, e)
		return h
	}
	out.requests = counter(Requests, "", "Requests of tenants by outcome.")
	out.routes = counter(Routes, "", "Admissions by the kind of their route.")
	out.disagreements = counter(Disagreements, "", "Requests on which two views differed. Each is an incident.")
	out.retries = counter(Retries, "", "Second attempts before the first token.")
	out.tokens = counter(Tokens, "", "Verified tokens.")
	out.pages = counter(PagesMoved, "", "Pages that were moved and verified.")
	out.first = histogram(FirstToken, "Time from a request's arrival to its first token.", .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60)
	out.duration = histogram(Duration, "Time of a request.", .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300)
	var e error
	out.active, e = m.Int64UpDownCounter(Active, metric.WithDescription("Requests that run now."))
	err = first(err, e)
	up, e := m.Int64ObservableGauge(ReadyPairs, metric.WithDescription("Workers that can be picked."))
	err = first(err, e)
	limit, e := m.Int64ObservableGauge(Limit, metric.WithDescription("Context length that every ready pair can hold."))
	err = first(err, e)
	if err != nil || gauges == nil {
		return out, err
	}
	_, err = m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		p, d, l := gauges()
		o.ObserveInt64(up, p, metric.WithAttributes(attribute.String("service", "prefill")))
		o.ObserveInt64(up, d, metric.WithAttributes(attribute.String("service", "decode")))
		o.ObserveInt64(limit, l)
		return nil
	}, up, limit)
	return out, err
}

func first(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

func label(k, v string) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String(k, v))
}

// Started counts a request in.
func (m *Meter) Started() {
	if m.active != nil {
		m.active.Add(context.Background(), 1)
	}
}

// Ended counts it out. ttft is 0 when there was no token.
func (m *Meter) Ended(endpoint, outcome string, ttft, total time.Duration) {
	if m.requests == nil {
		return
	}
	ctx := context.Background()
	m.active.Add(ctx, -1)
	m.requests.Add(ctx, 1, metric.WithAttributes(attribute.String("endpoint", endpoint), attribute.String("outcome", outcome)))
	m.duration.Record(ctx, total.Seconds(), label("endpoint", endpoint))
	if ttft > 0 {
		m.first.Record(ctx, ttft.Seconds(), label("endpoint", endpoint))
	}
}

// Refused counts a request that ended at the door.
func (m *Meter) Refused(endpoint string) {
	if m.requests != nil {
		m.requests.Add(context.Background(), 1, metric.WithAttributes(attribute.String("endpoint", endpoint), attribute.String("outcome", "refused")))
	}
}

// Route counts an admission.
func (m *Meter) Route(why string) { add(m.routes, 1, "route", why) }

// Disagreement counts a difference of two views.
func (m *Meter) Disagreement(field string) { add(m.disagreements, 1, "field", field) }

// Retry counts a retry, or why there was none.
func (m *Meter) Retry(result string) { add(m.retries, 1, "result", result) }

// Verified counts what a finished choice was proven to have used.
func (m *Meter) Verified(prompt, completion, pages uint32) {
	add(m.tokens, int64(prompt), "kind", "prompt")
	add(m.tokens, int64(completion), "kind", "completion")
	if m.pages != nil {
		m.pages.Add(context.Background(), int64(pages))
	}
}

func add(c metric.Int64Counter, n int64, k, v string) {
	if c != nil {
		c.Add(context.Background(), n, label(k, v))
	}
}
