package consul

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/consul/api"
	"go.uber.org/goleak"

	"leasehold.dev/mesh/registry"
	"leasehold.dev/mesh/registry/consul/consultest"
	"leasehold.dev/mesh/registry/registrytest"
	"leasehold.dev/protos/errs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, address string) *Registry {
	t.Helper()
	r, err := New(Config{Address: address, TTL: registrytest.TTL, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func TestConformance(t *testing.T) {
	registrytest.Run(t, func(t *testing.T) registrytest.Backend {
		s := consultest.Start(t)
		return registrytest.Backend{
			Open:    func(t *testing.T) registry.Registry { return open(t, s.Address) },
			Kill:    func(*testing.T) { s.Kill() },
			Restart: func(*testing.T) { s.Restart() },
		}
	})
}

func await(t *testing.T, sets <-chan []registry.Instance, n int) []registry.Instance {
	t.Helper()
	timeout := time.NewTimer(time.Minute)
	defer timeout.Stop()
	for {
		select {
		case set := <-sets:
			if len(set) == n {
				return set
			}
		case <-timeout.C:
			t.Fatalf("no set of %d instances came", n)
		}
	}
}

func TestAnEntryThatTheAgentForgotIsRegisteredAgain(t *testing.T) {
	s := consultest.Start(t)
	r := open(t, s.Address)
	in := registry.Instance{Service: "decode", ID: "d1", Address: "127.0.0.1:7000"}
	leave, err := r.Register(t.Context(), in, func(context.Context) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	sets, err := r.Watch(t.Context(), "decode")
	if err != nil {
		t.Fatal(err)
	}
	await(t, sets, 1)
	// As after DeregisterCriticalServiceAfter: the agent no longer has the entry.
	if err := r.api.Agent().ServiceDeregister(entryID(in)); err != nil {
		t.Fatal(err)
	}
	await(t, sets, 0)
	if set := await(t, sets, 1); !set[0].Equal(in) {
		t.Errorf("got %+v, want %+v", set[0], in)
	}
	if err := leave(t.Context()); err != nil {
		t.Error(err)
	}
	services, err := r.api.Agent().Services()
	if err != nil || len(services) != 0 {
		t.Errorf("after leave the agent has %d entries, %v", len(services), err)
	}
}

func TestTheCheckSaysWhyAndIsRemovedInTheEnd(t *testing.T) {
	s := consultest.Start(t)
	r := open(t, s.Address)
	in := registry.Instance{Service: "decode", ID: "d1", Address: "127.0.0.1:7000"}
	beaten := make(chan struct{}, 100)
	leave, err := r.Register(t.Context(), in, func(context.Context) error {
		beaten <- struct{}{}
		return errs.New(errs.Unavailable, "broker: not attached")
	})
	if err != nil {
		t.Fatal(err)
	}
	<-beaten
	<-beaten // so the first beat has been answered
	checks, err := r.api.Agent().Checks()
	if err != nil {
		t.Fatal(err)
	}
	got := checks[entryID(in)+":ttl"]
	if got == nil || got.Status != api.HealthCritical || got.Output != "broker: not attached" {
		t.Errorf("check = %+v, want critical with the reason", got)
	}
	if err := leave(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestTheTokenIsSent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("from-a-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]Config{"given": {Token: "given"}, "from-a-file": {TokenFile: file}} {
		seen := make(chan string, 1)
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case seen <- r.Header.Get("X-Consul-Token"):
			default:
			}
			http.Error(w, "no", http.StatusForbidden)
		}))
		c.Address, c.Log = srv.Listener.Addr().String(), slog.New(slog.DiscardHandler)
		r, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		sets, err := r.Watch(ctx, "decode")
		if err != nil {
			t.Fatal(err)
		}
		if got := <-seen; got != want {
			t.Errorf("token %q, want %q", got, want)
		}
		cancel()
		for range sets {
			t.Error("a refused query gave a set")
		}
		r.Close()
		srv.Close()
	}
}

func TestNewRefuses(t *testing.T) {
	for why, c := range map[string]Config{
		"no port":                        {Address: "127.0.0.1"},
		"a token over a network":         {Address: "10.0.0.1:8500", Token: "secret"},
		"a token file over a network":    {Address: "10.0.0.1:8500", TokenFile: "/secret"},
		"a token file that is not there": {Address: "127.0.0.1:8500", TokenFile: "/does/not/exist"},
	} {
		if _, err := New(c); errs.KindOf(err) != errs.Invalid {
			t.Errorf("%s: %v, want invalid", why, err)
		}
	}
}

func TestAdvance(t *testing.T) {
	for _, c := range []struct {
		why             string
		old, next, want uint64
	}{
		{"forward", 5, 9, 9},
		{"no news", 5, 5, 5},
		{"backwards: start over", 9, 5, 0},
		{"never wait for 0, which does not wait", 0, 0, 1},
	} {
		if got := advance(c.old, c.next); got != c.want {
			t.Errorf("%s: advance(%d, %d) = %d, want %d", c.why, c.old, c.next, got, c.want)
		}
	}
}

func TestInstances(t *testing.T) {
	entry := func(id, address string, port int) *api.ServiceEntry {
		return &api.ServiceEntry{Node: &api.Node{Address: "10.0.0.9"}, Service: &api.AgentService{ID: id, Address: address, Port: port}}
	}
	got := instances("decode", []*api.ServiceEntry{
		entry("decode:d2", "10.0.0.2", 7000),
		entry("decode:d1", "", 7000),
		entry("decode:d3", "10.0.0.4", 7000),
		entry("decode:d3", "10.0.0.3", 7000), // of another agent
		entry("decode", "10.0.0.5", 7000),    // of somebody else
		entry("prefill:p1", "10.0.0.6", 7000),
		entry("decode:d4", "10.0.0.7", 0),
	})
	want := []registry.Instance{
		{Service: "decode", ID: "d1", Address: "10.0.0.9:7000"},
		{Service: "decode", ID: "d2", Address: "10.0.0.2:7000"},
		{Service: "decode", ID: "d3", Address: "10.0.0.3:7000"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("instances (-want +got):\n%s", d)
	}
}
