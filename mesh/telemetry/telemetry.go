// Package telemetry sets up metrics (scraped from /metrics) and traces (sent by OTLP, only where an endpoint is given).
//
// Nothing global is set: a process can hold several, as tests do. No text of a tenant's goes into a name, label or span.
package telemetry

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc/stats"

	"leasehold.dev/protos/errs"
)

// Scope is the instrumentation scope of everything that a service measures itself.
const Scope = "leasehold.dev"

// clientView keeps the peers' addresses out of the labels: each restart at another port would add one for ever.
var clientView = sdkmetric.NewView(sdkmetric.Instrument{Name: "rpc.client.*"},
	sdkmetric.Stream{AttributeFilter: attribute.NewDenyKeysFilter("server.address", "server.port", "network.peer.address", "network.peer.port")})

// Telemetry is one process's meters and tracers.
type Telemetry struct {
	metrics  *sdkmetric.MeterProvider
	traces   trace.TracerProvider
	stop     func(context.Context) error
	gatherer prometheus.Gatherer
}

// New starts telemetry for service/id. otlp is the URL that traces go to, http or https; empty: there are none.
func New(ctx context.Context, service, id, otlp string) (*Telemetry, error) {
	res := resource.NewSchemaless(attribute.String("service.name", "leasehold-"+service), attribute.String("service.instance.id", id))
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	exp, err := otelprom.New(otelprom.WithRegisterer(reg), otelprom.WithoutScopeInfo())
	if err != nil {
		return nil, errs.New(errs.Internal, "telemetry: %w", err)
	}
	t := &Telemetry{
		metrics:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(exp), sdkmetric.WithResource(res), sdkmetric.WithView(clientView)),
		traces:   noop.NewTracerProvider(),
		stop:     func(context.Context) error { return nil },
		gatherer: reg,
	}
	if otlp == "" {
		return t, nil
	}
	if u, err := url.Parse(otlp); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errs.New(errs.Invalid, "telemetry: the OTLP endpoint must be http://host:port or https://host:port")
	}
	out, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(otlp))
	if err != nil {
		return nil, errs.New(errs.Invalid, "telemetry: OTLP: %w", err)
	}
	tp := sdktrace.NewTracerProvider(sdktrace.WithBatcher(out), sdktrace.WithResource(res))
	t.traces, t.stop = tp, tp.Shutdown
	return t, nil
}

// Meter makes the service's instruments.
func (t *Telemetry) Meter() metric.Meter { return t.metrics.Meter(Scope) }

// Tracer makes the service's spans.
func (t *Telemetry) Tracer() trace.Tracer { return t.traces.Tracer(Scope) }

// Handler serves /metrics.
func (t *Telemetry) Handler() http.Handler {
	return promhttp.HandlerFor(t.gatherer, promhttp.HandlerOpts{})
}

// ServerStats measures the calls of methods that known accepts. A caller chooses a method's name, so an unknown one
// must not become a label.
func (t *Telemetry) ServerStats(known func(method string) bool) stats.Handler {
	return otelgrpc.NewServerHandler(append(t.options(),
		otelgrpc.WithFilter(func(i *stats.RPCTagInfo) bool { return known(i.FullMethodName) }))...)
}

// ClientStats measures the calls of a connection.
func (t *Telemetry) ClientStats() stats.Handler { return otelgrpc.NewClientHandler(t.options()...) }

// Trace context is passed on, baggage is not: it could carry anything.
func (t *Telemetry) options() []otelgrpc.Option {
	return []otelgrpc.Option{otelgrpc.WithMeterProvider(t.metrics), otelgrpc.WithTracerProvider(t.traces),
		otelgrpc.WithPropagators(propagation.TraceContext{})}
}

// Close sends what is left of the traces, for as long as ctx allows.
func (t *Telemetry) Close(ctx context.Context) error {
	return errors.Join(t.stop(ctx), t.metrics.Shutdown(ctx))
}
