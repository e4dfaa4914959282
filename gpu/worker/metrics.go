package worker

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"leasehold.dev/gpu/runner"
	"leasehold.dev/protos/errs"
)

// Names of the instruments of a worker.
const (
	MetricSteps     = "leasehold_worker_steps"          // count
	MetricTokens    = "leasehold_worker_tokens"         // count, appended to KV; phase: prompt, decode
	MetricStepTime  = "leasehold_worker_step_seconds"   // histogram
	MetricFaults    = "leasehold_worker_faults"         // count of fault records; kind: read, write, length, pages
	MetricRequests  = "leasehold_worker_requests"       // count; outcome: ok, canceled, deadline or an error's kind
	MetricWaiting   = "leasehold_worker_queue_requests" // gauge
	MetricWaitToken = "leasehold_worker_queue_tokens"   // gauge: prompt tokens waiting or running
	MetricRunning   = "leasehold_worker_sequences"      // gauge
	MetricLimit     = "leasehold_worker_limit_tokens"   // gauge; number: derived, promised
	MetricGuards    = "leasehold_worker_guards_on"      // gauge: 1 on, 0 off
	MetricAttached  = "leasehold_worker_attached"       // gauge: 1 attached to a broker
)

// gauges are read when somebody scrapes.
type gauges struct {
	waiting, tokens, running, limit, promise, guards, attached int64
}

func (h *Host[B]) gauges() gauges {
	load := h.runner.Load()
	g := gauges{waiting: int64(load.Requests), tokens: int64(load.Tokens), running: int64(load.Running), promise: int64(h.promise)}
	if h.GuardsOn() {
		g.guards = 1
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.link != nil {
		g.attached, g.limit = 1, int64(h.link.Limit)
	}
	return g
}

type metrics struct {
	steps, tokens, faults, requests metric.Int64Counter
	stepTime                        metric.Float64Histogram
	prompt, decode                  metric.MeasurementOption
	callback                        metric.Registration
}

func newMetrics(m metric.Meter, read func() gauges) (*metrics, error) {
	var failed error
	counter := func(name, what string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithDescription(what))
		failed = errors.Join(failed, err)
		return c
	}
	gauge := func(name, what string) metric.Int64ObservableGauge {
		g, err := m.Int64ObservableGauge(name, metric.WithDescription(what))
		failed = errors.Join(failed, err)
		return g
	}
	s := &metrics{
		steps:    counter(MetricSteps, "steps of the engine"),
		tokens:   counter(MetricTokens, "tokens appended to KV"),
		faults:   counter(MetricFaults, "fault records of the tag check"),
		requests: counter(MetricRequests, "requests that ended, by outcome"),
		prompt:   metric.WithAttributes(attribute.String("phase", "prompt")),
		decode:   metric.WithAttributes(attribute.String("phase", "decode")),
	}
	var err error
	s.stepTime, err = m.Float64Histogram(MetricStepTime, metric.WithUnit("s"), metric.WithDescription("time of a step"),
		metric.WithExplicitBucketBoundaries(.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30))
	failed = errors.Join(failed, err)
	waiting := gauge(MetricWaiting, "requests that wait")
	tokens := gauge(MetricWaitToken, "prompt tokens that wait or run")
	running := gauge(MetricRunning, "sequences that run")
	limit := gauge(MetricLimit, "most tokens of one request: derived and promised")
	guards := gauge(MetricGuards, "1 when tags are checked")
	attached := gauge(MetricAttached, "1 when attached to a broker")
	if failed != nil {
		return nil, errs.Mark(failed, errs.Internal)
	}
	s.callback, err = m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		g := read()
		o.ObserveInt64(waiting, g.waiting)
		o.ObserveInt64(tokens, g.tokens)
		o.ObserveInt64(running, g.running)
		o.ObserveInt64(limit, g.limit, metric.WithAttributes(attribute.String("number", "derived")))
		o.ObserveInt64(limit, g.promise, metric.WithAttributes(attribute.String("number", "promised")))
		o.ObserveInt64(guards, g.guards)
		o.ObserveInt64(attached, g.attached)
		return nil
	}, waiting, tokens, running, limit, guards, attached)
	return s, errs.Mark(err, errs.Internal)
}

func (s *metrics) close() {
	if s.callback != nil {
		_ = s.callback.Unregister()
	}
}

func (s *metrics) step(x runner.Stats) {
	ctx := context.Background()
	s.steps.Add(ctx, 1)
	s.stepTime.Record(ctx, float64(x.Took)/float64(time.Second))
	if x.Prompt > 0 {
		s.tokens.Add(ctx, int64(x.Prompt), s.prompt)
	}
	if x.Decode > 0 {
		s.tokens.Add(ctx, int64(x.Decode), s.decode)
	}
	for _, f := range x.Faults {
		s.faults.Add(ctx, 1, metric.WithAttributes(attribute.String("kind", f.Kind.String())))
	}
}

// Ended counts a request by how it ended.
func (h *Host[B]) Ended(err error) {
	h.metrics.requests.Add(context.Background(), 1, metric.WithAttributes(attribute.String("outcome", outcome(err))))
}

func outcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline"
	}
	return errs.KindOf(err).String()
}
