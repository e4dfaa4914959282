package embedded

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"leasehold.dev/mesh/identity"
	"leasehold.dev/mesh/registry"
	"leasehold.dev/mesh/registry/registrytest"
	"leasehold.dev/mesh/rpc"
	"leasehold.dev/protos/errs"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// host is a registry server that can be killed and started again at its address.
type host struct {
	who  *identity.Identity
	addr string
	stop func()
}

func (h *host) start(t *testing.T) {
	t.Helper()
	ln, err := net.Listen("tcp", h.addr)
	if err != nil {
		t.Fatal(err)
	}
	h.addr = ln.Addr().String()
	var guard rpc.Guard
	for _, m := range Methods() {
		guard.Allow(m, rpc.Anyone)
	}
	chain := rpc.Server{Log: slog.New(slog.DiscardHandler), Identity: h.who, Guard: &guard}
	g, s, done := grpc.NewServer(chain.Options()...), NewServer(), make(chan struct{})
	s.Register(g)
	go func() { defer close(done); _ = g.Serve(ln) }()
	h.stop = func() { g.Stop(); s.Close(); <-done }
}

func (h *host) dial(t *testing.T, who *identity.Identity) *grpc.ClientConn {
	t.Helper()
	quick := grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 5 * time.Second, Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, MaxDelay: 200 * time.Millisecond}})
	cc, err := rpc.Dial(h.addr, append(rpc.DialOptions(who.ClientCreds(Service, ""), nil), quick)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cc.Close() })
	return cc
}

func TestConformance(t *testing.T) {
	registrytest.Run(t, func(t *testing.T) registrytest.Backend {
		h := &host{who: identity.Plain(), addr: "127.0.0.1:0"}
		h.start(t)
		t.Cleanup(func() { h.stop() })
		return registrytest.Backend{
			Open: func(t *testing.T) registry.Registry {
				return NewClient(h.dial(t, h.who), registrytest.TTL, slog.New(slog.DiscardHandler))
			},
			Kill:    func(*testing.T) { h.stop() },
			Restart: h.start,
		}
	})
}

func issued(t *testing.T, ca *identity.CA, service, id string) *identity.Identity {
	t.Helper()
	dir := t.TempDir()
	if err := ca.Issue(dir, service, id); err != nil {
		t.Fatal(err)
	}
	who, err := identity.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return who
}

func TestNobodySpeaksForAnother(t *testing.T) {
	ca, err := identity.NewCA(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h := &host{who: issued(t, ca, Service, "reg"), addr: "127.0.0.1:0"}
	h.start(t)
	defer func() { h.stop() }()
	client := meshv1.NewRegistryServiceClient(h.dial(t, issued(t, ca, "decode", "d1")))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, c := range []struct {
		why, service, id string
		want             errs.Kind
		ok               bool
	}{
		{"in its own name", "decode", "d1", 0, true},
		{"for another instance", "decode", "d2", errs.Denied, false},
		{"for another service", "kvbroker", "d1", errs.Denied, false},
	} {
		_, err := client.Beat(ctx, &meshv1.BeatRequest{Instance: toWire(inst(c.service, c.id)), TtlMs: 1000, Passing: true})
		if (err == nil) != c.ok || err != nil && errs.KindOf(err) != c.want {
			t.Errorf("Beat %s: %v", c.why, err)
		}
		_, err = client.Leave(ctx, &meshv1.LeaveRequest{Service: c.service, Id: c.id})
		if (err == nil) != c.ok || err != nil && errs.KindOf(err) != c.want {
			t.Errorf("Leave %s: %v", c.why, err)
		}
	}
	if _, err := client.Beat(ctx, &meshv1.BeatRequest{}); errs.KindOf(err) != errs.Denied {
		t.Errorf("a beat without instance: %v, want denied", err)
	}
}

func TestWatchOfAllServicesAndClose(t *testing.T) {
	h := &host{who: identity.Plain(), addr: "127.0.0.1:0"}
	h.start(t)
	defer h.stop()
	client := meshv1.NewRegistryServiceClient(h.dial(t, h.who))
	for _, in := range []registry.Instance{inst("router", "r1"), inst("decode", "d1")} {
		if _, err := client.Beat(t.Context(), &meshv1.BeatRequest{Instance: toWire(in), TtlMs: 60_000, Passing: true}); err != nil {
			t.Fatal(err)
		}
	}
	stream, err := client.Watch(t.Context(), &meshv1.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := stream.Recv()
	if err != nil || len(resp.GetInstances()) != 2 || resp.GetInstances()[0].GetService() != "decode" {
		t.Fatalf("first answer %v, %v; want both, sorted", resp, err)
	}
	h.stop()
	if _, err := stream.Recv(); errs.KindOf(err) != errs.Unavailable {
		t.Errorf("after Close: %v, want unavailable", err)
	}
}
