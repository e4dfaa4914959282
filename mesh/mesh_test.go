package mesh

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"leasehold.dev/mesh/identity"
	"leasehold.dev/mesh/registry"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must come; the machine may be slow.
const patience = 60 * time.Second

// logBuffer is a log that a test may read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func plainConfig(service, id string) Config {
	return Config{Service: service, ID: id, Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", Insecure: true, Drain: 10 * time.Second, LogOutput: &logBuffer{}}
}

func newServer(t *testing.T, c Config) *Server {
	t.Helper()
	s, err := New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// running is a server that runs until stop, which returns what Run did.
func running(t *testing.T, s *Server) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { _ = stop() })
	return stop
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func readyz(t *testing.T, s *Server) (int, verdict) {
	t.Helper()
	code, body := get(t, "http://"+s.AdminAddr()+"/readyz")
	var v verdict
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatalf("/readyz %q: %v", body, err)
	}
	return code, v
}

// startRegistry runs an embedded registry and returns its URL.
func startRegistry(t *testing.T, c Config) string {
	t.Helper()
	s := newServer(t, c)
	ServeRegistry(s)
	running(t, s)
	return "embedded://" + s.Addr()
}

func await(t *testing.T, sets <-chan []registry.Instance, ids string) []registry.Instance {
	t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		select {
		case set, open := <-sets:
			var got []string
			for _, in := range set {
				got = append(got, in.ID)
			}
			if !open {
				t.Fatalf("the watch ended while waiting for %q", ids)
			}
			if strings.Join(got, " ") == ids {
				return set
			}
		case <-timeout.C:
			t.Fatalf("%q never came", ids)
		}
	}
}

// stub is a service with one method that blocks and one stream that ends with the drain.
type stub struct {
	meshv1.UnimplementedRegistryServiceServer
	beat  func(context.Context) error
	watch func(grpc.ServerStreamingServer[meshv1.WatchResponse]) error
}

func (s *stub) Beat(ctx context.Context, _ *meshv1.BeatRequest) (*meshv1.BeatResponse, error) {
	return &meshv1.BeatResponse{}, s.beat(ctx)
}

func (s *stub) Watch(_ *meshv1.WatchRequest, ss grpc.ServerStreamingServer[meshv1.WatchResponse]) error {
	return s.watch(ss)
}

func (s *stub) on(m *Server, callers ...string) {
	meshv1.RegisterRegistryServiceServer(m.GRPC(), s)
	m.Allow(meshv1.RegistryService_Beat_FullMethodName, callers...)
	m.Allow(meshv1.RegistryService_Watch_FullMethodName, callers...)
}

func client(t *testing.T, from *Server, to registry.Instance) meshv1.RegistryServiceClient {
	t.Helper()
	cc, err := from.Dial(to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cc.Close() })
	return meshv1.NewRegistryServiceClient(cc)
}

// certified is plainConfig with TLS.
func certified(t *testing.T, ca *identity.CA, service, id string) Config {
	t.Helper()
	c := plainConfig(service, id)
	c.Insecure, c.IdentityDir = false, filepath.Join(t.TempDir(), "identity")
	if err := ca.Issue(c.IdentityDir, service, id); err != nil {
		t.Fatal(err)
	}
	return c
}

// poll asks until ok, where nothing tells.
func poll(t *testing.T, what string, ok func() bool) {
	t.Helper()
	timeout, tick := time.NewTimer(patience), time.NewTicker(10*time.Millisecond)
	defer timeout.Stop()
	defer tick.Stop()
	for !ok() {
		select {
		case <-timeout.C:
			t.Fatalf("%s never came", what)
		case <-tick.C:
		}
	}
}
