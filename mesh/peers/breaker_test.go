package peers

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"leasehold.dev/mesh/registry"
	"leasehold.dev/protos/errs"
)

func newPeer() *Peer {
	in := registry.Instance{Service: "decode", ID: "d1", Address: "127.0.0.1:7000"}
	return &Peer{Instance: in, breaker: newBreaker(in)}
}

// do calls p once with err as the outcome, and reports whether the call went through.
func do(p *Peer, err error) bool {
	called := false
	_ = p.Do(func() error { called = true; return err })
	return called
}

func TestOnlyUnavailableAndInternalOpenTheBreaker(t *testing.T) {
	for _, c := range []struct {
		err   error
		opens bool
	}{
		{nil, false},
		{errs.New(errs.Internal, "x"), true},
		{errs.New(errs.Invalid, "x"), false},
		{errs.New(errs.Limit, "x"), false},
		{errs.New(errs.Denied, "x"), false},
		{errs.New(errs.NotFound, "x"), false},
		{errs.New(errs.Stale, "x"), false},
		{errs.New(errs.Exhausted, "x"), false},
		{errs.New(errs.Unavailable, "x"), true},
		{errs.New(errs.Corrupt, "x"), false},
		{errors.New("an unmarked error is a bug"), true},
		{context.Canceled, false},
		{fmt.Errorf("decode: %w", context.DeadlineExceeded), false},
	} {
		p := newPeer()
		for range 2 * tripAfter {
			do(p, c.err)
		}
		if p.Open() != c.opens {
			t.Errorf("after %d times %v: open = %v", 2*tripAfter, c.err, p.Open())
		}
	}
}

func TestBreakerScript(t *testing.T) {
	down := errs.New(errs.Unavailable, "connection refused")
	synctest.Test(t, func(t *testing.T) {
		p := newPeer()
		for i := range tripAfter {
			if p.Open() || p.State() != "closed" {
				t.Errorf("open after %d failures", i)
			}
			if !do(p, down) {
				t.Fatalf("call %d was refused", i)
			}
		}
		if !p.Open() || p.State() != "open" || do(p, nil) {
			t.Errorf("after %d failures in a row the state is %s", tripAfter, p.State())
		}
		err := p.Do(func() error { return nil })
		if errs.KindOf(err) != errs.Unavailable {
			t.Errorf("a refused call is %v, want unavailable: another peer may be tried", err)
		}
		time.Sleep(openFor + 1)
		if p.State() != "half-open" || p.Open() {
			t.Errorf("after %v the state is %s", openFor, p.State())
		}
		if !do(p, down) || !p.Open() {
			t.Error("a failed probe must open the breaker again")
		}
		time.Sleep(openFor + 1)
		if !do(p, nil) || p.State() != "closed" {
			t.Errorf("after a good probe the state is %s", p.State())
		}
	})
}

func TestASuccessBetweenFailuresKeepsTheBreakerClosed(t *testing.T) {
	p := newPeer()
	for range 10 {
		for range tripAfter - 1 {
			do(p, errs.New(errs.Unavailable, "x"))
		}
		do(p, nil)
	}
	if p.Open() {
		t.Errorf("open, though never %d failures in a row", tripAfter)
	}
}

func TestAProbeThatWasGivenUpLeavesRoomForTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer()
		for range tripAfter {
			do(p, errs.New(errs.Unavailable, "x"))
		}
		time.Sleep(openFor + 1)
		if !do(p, context.Canceled) {
			t.Fatal("the probe was refused")
		}
		if !do(p, nil) || p.State() != "closed" {
			t.Errorf("a given-up probe blocks the breaker in state %s", p.State())
		}
	})
}

func TestOneProbeAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer()
		for range tripAfter {
			do(p, errs.New(errs.Unavailable, "x"))
		}
		time.Sleep(openFor + 1)
		_ = p.Do(func() error {
			if do(p, nil) {
				t.Error("a second call went through beside the probe")
			}
			return nil
		})
	})
}
