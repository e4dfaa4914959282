package rpc

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"leasehold.dev/mesh/identity"
	"leasehold.dev/protos/errs"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

const beat, leave, watching = meshv1.RegistryService_Beat_FullMethodName, meshv1.RegistryService_Leave_FullMethodName, meshv1.RegistryService_Watch_FullMethodName

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

func TestWhoMayCallWhat(t *testing.T) {
	ca, err := identity.NewCA(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	server, router, decode := issued(t, ca, "registry", "r"), issued(t, ca, "router", "r1"), issued(t, ca, "decode", "d1")
	g := &Guard{}
	g.Allow(beat, "router", "prefill")
	g.Allow(watching, Anyone)
	g.Allow(leave)
	s := &service{beat: func(context.Context) error { return nil },
		watch: func(grpc.ServerStreamingServer[meshv1.WatchResponse]) error { return errs.New(errs.Stale, "reached") }}
	secure, plain := start(t, server, g, s), start(t, identity.Plain(), g, s)
	for _, c := range []struct {
		why    string
		at     bench
		who    *identity.Identity
		method string
		ok     bool
	}{
		{"a service that is named", secure, router, beat, true},
		{"a service that is not", secure, decode, beat, false},
		{"a stream open to anyone", secure, decode, watching, true},
		{"a method with a rule that names nobody", secure, router, leave, false},
		{"on loopback, a method that somebody may call", plain, identity.Plain(), beat, true},
		{"on loopback, a stream that somebody may call", plain, identity.Plain(), watching, true},
		{"on loopback, a method that nobody may call", plain, identity.Plain(), leave, false},
	} {
		client := c.at.dial(t, c.who)
		var err error
		switch c.method {
		case beat:
			_, err = client.Beat(soon(t), &meshv1.BeatRequest{})
		case leave:
			_, err = client.Leave(soon(t), &meshv1.LeaveRequest{})
		case watching:
			stream, openErr := client.Watch(soon(t), &meshv1.WatchRequest{})
			if openErr != nil {
				t.Fatal(openErr)
			}
			if _, err = stream.Recv(); errs.KindOf(err) == errs.Stale {
				err = nil
			}
		}
		if c.ok && err != nil || !c.ok && errs.KindOf(err) != errs.Denied {
			t.Errorf("%s: %v, want ok %v or denied", c.why, err, c.ok)
		}
	}
}

func TestGuardLists(t *testing.T) {
	g := &Guard{}
	if g.Knows(beat) || len(g.Methods()) != 0 {
		t.Error("an empty guard knows methods")
	}
	g.Allow(watching, Anyone)
	g.Allow(beat, "router")
	g.Allow(beat, "decode")
	if !g.Knows(beat) || g.Knows(leave) {
		t.Error("Knows: want Beat and not Leave")
	}
	if got, want := g.Methods(), []string{beat, watching}; !slices.Equal(got, want) {
		t.Errorf("Methods = %v, want %v", got, want)
	}
}

func TestRefusedHandshakesAreLogged(t *testing.T) {
	ours, err := identity.NewCA(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	others, err := identity.NewCA(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := start(t, issued(t, ours, "registry", "r"), all(), &service{beat: func(context.Context) error { return nil }})
	if _, err := b.dial(t, issued(t, others, "router", "r1")).Beat(soon(t), &meshv1.BeatRequest{}); errs.KindOf(err) != errs.Unavailable {
		t.Errorf("a stranger's call: %v, want unavailable", err)
	}
	// The client hears of it before the server has written it down.
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for ctx := soon(t); !strings.Contains(b.log.String(), "handshake refused"); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("log %q: want the refusal", b.log)
		}
	}
	if !strings.Contains(b.log.String(), `"from":"127.0.0.1:`) {
		t.Errorf("log %q: want where it came from", b.log)
	}
}
