package telemetry

import (
	"context"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric"
	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/stats"

	"leasehold.dev/protos/errs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func scrape(t *testing.T, tel *Telemetry) string {
	t.Helper()
	rec := httptest.NewRecorder()
	tel.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	if rec.Code != 200 {
		t.Fatalf("/metrics: %d", rec.Code)
	}
	return rec.Body.String()
}

func newTelemetry(t *testing.T, otlp string) *Telemetry {
	t.Helper()
	tel, err := New(t.Context(), "decode", "d1", otlp)
	if err != nil {
		t.Fatal(err)
	}
	return tel
}

func shut(t *testing.T, tel *Telemetry) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := tel.Close(ctx); err != nil {
		t.Error(err)
	}
}

func TestMetricsAreScraped(t *testing.T) {
	tel := newTelemetry(t, "")
	defer shut(t, tel)
	n, err := tel.Meter().Int64Counter("leasehold_pages_sealed", metric.WithDescription("pages sealed"))
	if err != nil {
		t.Fatal(err)
	}
	n.Add(t.Context(), 3)
	got := scrape(t, tel)
	for _, want := range []string{"leasehold_pages_sealed_total 3\n", "go_goroutines", "process_open_fds", "process_resident_memory_bytes"} {
		if !strings.Contains(got, want) {
			t.Errorf("/metrics lacks %q", want)
		}
	}
}

func TestNamesThatACallerMadeUpAreNoLabels(t *testing.T) {
	tel := newTelemetry(t, "")
	defer shut(t, tel)
	// The end of the inner test stops the server, so that all its calls are counted.
	t.Run("calls", func(t *testing.T) {
		addr := serve(t, tel.ServerStats(func(m string) bool { return m == healthpb.Health_Check_FullMethodName }))
		cc := dial(t, addr, grpc.WithStatsHandler(tel.ClientStats()))
		if _, err := healthpb.NewHealthClient(cc).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
		bare := dial(t, addr)
		if err := bare.Invoke(t.Context(), "/made.up/Name", &healthpb.HealthCheckRequest{}, &healthpb.HealthCheckResponse{}); err == nil {
			t.Error("an unknown method answered")
		}
		if _, err := healthpb.NewHealthClient(bare).List(t.Context(), &healthpb.HealthListRequest{}); err != nil {
			t.Fatal(err)
		}
	})
	got := scrape(t, tel)
	for _, want := range []string{"rpc_server_", "rpc_client_", "grpc.health.v1.Health/Check"} {
		if !strings.Contains(got, want) {
			t.Errorf("/metrics lacks %q", want)
		}
	}
	if strings.Contains(got, "127.0.0.1") {
		t.Error("a peer's address became a label")
	}
	if strings.Contains(got, "made.up") || strings.Contains(got, "Health/List") {
		t.Error("a made-up method became a label")
	}
}

// collector is an OTLP receiver that notes the names of spans.
type collector struct {
	coltrace.UnimplementedTraceServiceServer
	names chan string
}

func (c collector) Export(_ context.Context, req *coltrace.ExportTraceServiceRequest) (*coltrace.ExportTraceServiceResponse, error) {
	for _, r := range req.GetResourceSpans() {
		for _, s := range r.GetScopeSpans() {
			for _, span := range s.GetSpans() {
				c.names <- span.GetName()
			}
		}
	}
	return &coltrace.ExportTraceServiceResponse{}, nil
}

func TestTracesGoToTheEndpoint(t *testing.T) {
	c := collector{names: make(chan string, 10)}
	addr := serve(t, nil, func(s *grpc.Server) { coltrace.RegisterTraceServiceServer(s, c) })
	tel := newTelemetry(t, "http://"+addr)
	_, span := tel.Tracer().Start(t.Context(), "admit")
	if !span.SpanContext().IsSampled() {
		t.Error("the span is not sampled")
	}
	span.End()
	shut(t, tel)
	select {
	case got := <-c.names:
		if got != "admit" {
			t.Errorf("span %q", got)
		}
	default:
		t.Error("Close lost the span")
	}
}

func TestWithoutEndpointThereAreNoTraces(t *testing.T) {
	tel := newTelemetry(t, "")
	defer shut(t, tel)
	_, span := tel.Tracer().Start(t.Context(), "admit")
	defer span.End()
	if span.IsRecording() {
		t.Error("a span is recorded for nobody")
	}
}

func TestEndpointMustBeAURL(t *testing.T) {
	for _, bad := range []string{"127.0.0.1:4317", "grpc://127.0.0.1:4317", "http://", "::"} {
		if _, err := New(t.Context(), "decode", "d1", bad); errs.KindOf(err) != errs.Invalid {
			t.Errorf("New(%q) = %v, want invalid", bad, err)
		}
	}
}

func serve(t *testing.T, st stats.Handler, more ...func(*grpc.Server)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	opts := []grpc.ServerOption{grpc.WaitForHandlers(true)}
	if st != nil {
		opts = append(opts, grpc.StatsHandler(st))
	}
	srv := grpc.NewServer(opts...)
	healthpb.RegisterHealthServer(srv, health.NewServer())
	for _, f := range more {
		f(srv)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(ln) }()
	t.Cleanup(func() { srv.Stop(); <-done })
	return ln.Addr().String()
}

func dial(t *testing.T, addr string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient("passthrough:///"+addr, append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cc.Close() })
	return cc
}
