package mesh

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"leasehold.dev/mesh/identity"
	"leasehold.dev/mesh/registry"
	"leasehold.dev/protos/errs"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

// order is what happened, in order.
type order struct {
	mu     sync.Mutex
	events []string
}

func (r *order) add(e string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *order) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.events, ", ")
}

func TestDrainOrder(t *testing.T) {
	url := startRegistry(t, plainConfig("registry", "reg"))
	c := plainConfig("decode", "d1")
	c.Registry = url
	s := newServer(t, c)
	var tr order
	entered, release := make(chan struct{}), make(chan struct{})
	svc := &stub{
		beat: func(context.Context) error { close(entered); <-release; tr.add("call ended"); return nil },
		watch: func(ss grpc.ServerStreamingServer[meshv1.WatchResponse]) error {
			if err := ss.Send(&meshv1.WatchResponse{}); err != nil {
				return err
			}
			<-s.Draining()
			return errs.New(errs.Unavailable, "draining")
		},
	}
	svc.on(s, Anyone)

	outside := newServer(t, func() Config { c := plainConfig("router", "r1"); c.Registry = url; return c }())
	sets, err := outside.Registry.Watch(t.Context(), "decode")
	if err != nil {
		t.Fatal(err)
	}
	s.OnDrain(func(context.Context) {
		if code, v := readyz(t, s); code != 503 || !v.Draining {
			t.Errorf("/readyz in a hook = %d %+v, want draining", code, v)
		}
		await(t, sets, "")
		tr.add("first hook, after leaving")
	})
	s.OnDrain(func(ctx context.Context) {
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("a hook may take for ever")
		}
		tr.add("second hook")
		close(release)
	})
	stop := running(t, s)
	await(t, sets, "d1")
	caller := client(t, outside, registry.Instance{Service: "decode", ID: "d1", Address: s.Addr()})
	stream, err := caller.Watch(t.Context(), &meshv1.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	called := make(chan error, 1)
	go func() {
		_, err := caller.Beat(t.Context(), &meshv1.BeatRequest{})
		called <- err
	}()
	<-entered
	err = stop()
	tr.add("Run returned")
	if err != nil {
		t.Errorf("Run = %v", err)
	}
	if err := <-called; err != nil {
		t.Errorf("the running call was cut off: %v", err)
	}
	if _, err := stream.Recv(); errs.KindOf(err) != errs.Unavailable {
		t.Errorf("the stream ended with %v, want unavailable", err)
	}
	if got, want := tr.String(), "first hook, after leaving, second hook, call ended, Run returned"; got != want {
		t.Errorf("order:\n got %s\nwant %s", got, want)
	}
}

func TestCallsThatOutlastTheDrainAreCutOff(t *testing.T) {
	c := plainConfig("decode", "d1")
	c.Drain = 200 * time.Millisecond
	s := newServer(t, c)
	entered, ended := make(chan struct{}), make(chan struct{})
	svc := &stub{beat: func(ctx context.Context) error { close(entered); defer close(ended); <-ctx.Done(); return ctx.Err() }}
	svc.on(s, Anyone)
	stop := running(t, s)
	outside := newServer(t, plainConfig("router", "r1"))
	called := make(chan error, 1)
	caller := client(t, outside, registry.Instance{Service: "decode", ID: "d1", Address: s.Addr()})
	go func() {
		_, err := caller.Beat(t.Context(), &meshv1.BeatRequest{})
		called <- err
	}()
	<-entered
	if err := stop(); errs.KindOf(err) != errs.Unavailable || !strings.Contains(err.Error(), "200ms") {
		t.Errorf("Run = %v, want unavailable with the time", err)
	}
	<-ended
	if err := <-called; errs.KindOf(err) != errs.Unavailable {
		t.Errorf("the call ended with %v, want unavailable", err)
	}
}

func TestAHandlerThatIgnoresItsEndDoesNotHoldUpTheExit(t *testing.T) {
	c := plainConfig("decode", "d1")
	c.Drain = 100 * time.Millisecond
	s := newServer(t, c)
	entered, release, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	svc := &stub{beat: func(context.Context) error { close(entered); <-release; close(ended); return nil }}
	svc.on(s, Anyone)
	stop := running(t, s)
	caller := client(t, newServer(t, plainConfig("router", "r1")), registry.Instance{Service: "decode", ID: "d1", Address: s.Addr()})
	called := make(chan struct{})
	go func() {
		defer close(called)
		_, _ = caller.Beat(t.Context(), &meshv1.BeatRequest{})
	}()
	<-entered
	if err := stop(); errs.KindOf(err) != errs.Internal || !strings.Contains(err.Error(), "handler") {
		t.Errorf("Run = %v, want internal: the handler is the bug", err)
	}
	<-called
	close(release) // for goleak: a real process would be gone
	<-ended
}

func TestARegistryThatIsAwayDoesNotHoldUpTheDrain(t *testing.T) {
	c := plainConfig("decode", "d1")
	c.Registry = "embedded://127.0.0.1:1"
	s := newServer(t, c)
	if err := running(t, s)(); err != nil {
		t.Errorf("Run = %v", err)
	}
	if log := c.LogOutput.(*logBuffer).String(); !strings.Contains(log, "left without telling the registry") {
		t.Errorf("log %q", log)
	}
}

func TestARuleForNoMethodEndsRun(t *testing.T) {
	s := newServer(t, plainConfig("decode", "d1"))
	s.Allow("/leasehold.mesh.v1.RegistryService/Baet", "router")
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "Baet") {
		t.Errorf("Run = %v, want the misspelt method named", err)
	}
}

func TestMeshOverTLS(t *testing.T) {
	ca, err := identity.NewCA(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	url := startRegistry(t, certified(t, ca, "registry", "reg"))
	with := func(c Config) Config { c.Registry = url; return c }
	decode := newServer(t, with(certified(t, ca, "decode", "d1")))
	calls := 0
	svc := &stub{beat: func(ctx context.Context) error {
		if service, id, ok := identity.Peer(ctx); !ok || service != "router" || id != "r1" {
			t.Errorf("Peer = %s/%s, %v", service, id, ok)
		}
		calls++
		return errs.New(errs.Stale, "epoch 3, want 4")
	}}
	svc.on(decode, "router")
	running(t, decode)

	router := newServer(t, with(certified(t, ca, "router", "r1")))
	set, err := router.Peers(t.Context(), "decode")
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	for set.Get("d1") == nil {
		changed := set.Changed()
		if set.Get("d1") == nil {
			<-changed
		}
	}
	p := set.Get("d1")
	err = p.Do(func() error {
		_, err := meshv1.NewRegistryServiceClient(p.Conn).Beat(t.Context(), &meshv1.BeatRequest{})
		return err
	})
	if errs.KindOf(err) != errs.Stale || calls != 1 || p.Open() {
		t.Errorf("the call of an allowed service: %v, %d calls", err, calls)
	}
	prefill := newServer(t, certified(t, ca, "prefill", "p1"))
	_, err = client(t, prefill, p.Instance).Beat(t.Context(), &meshv1.BeatRequest{})
	if errs.KindOf(err) != errs.Denied || calls != 1 {
		t.Errorf("the call of another service: %v, want denied", err)
	}
	wrong := p.Instance
	wrong.ID = "d2"
	_, err = client(t, router, wrong).Beat(t.Context(), &meshv1.BeatRequest{})
	if err == nil || calls != 1 {
		t.Error("a server that is not the instance in the registry was called")
	}
}

func TestPeersNeedARegistry(t *testing.T) {
	s := newServer(t, plainConfig("router", "r1"))
	if _, err := s.Peers(t.Context(), "decode"); errs.KindOf(err) != errs.Invalid {
		t.Errorf("Peers = %v, want invalid", err)
	}
}

func TestCloseBeforeRun(t *testing.T) {
	s := newServer(t, plainConfig("decode", "d1"))
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
}
