package mesh

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"leasehold.dev/mesh/registry"
	"leasehold.dev/protos/errs"
)

func TestVerdict(t *testing.T) {
	fails := func(text string) func(context.Context) error {
		return func(context.Context) error { return errors.New(text) }
	}
	passes := func(context.Context) error { return nil }
	for _, c := range []struct {
		why   string
		setup func(*readiness)
		err   string // empty: ready
	}{
		{"no checks", func(*readiness) {}, ""},
		{"all pass", func(r *readiness) { r.add("a", passes); r.add("b", passes) }, ""},
		{"one fails", func(r *readiness) { r.add("a", passes); r.add("limit", fails("2048 derived, 4096 promised")) }, "limit: 2048 derived, 4096 promised"},
		{"two fail, in their order", func(r *readiness) { r.add("z", fails("1")); r.add("a", fails("2")) }, "z: 1; a: 2"},
		{"draining", func(r *readiness) { r.add("a", passes); r.drain() }, "draining"},
		{"a check that panics", func(r *readiness) { r.add("a", func(context.Context) error { panic("x") }) }, "a: the check panicked"},
	} {
		var r readiness
		c.setup(&r)
		v := r.look(t.Context())
		if got := v.err(); (c.err == "") != (got == nil) || got != nil && got.Error() != c.err {
			t.Errorf("%s: %v, want %q", c.why, got, c.err)
		}
		if got := v.err(); got != nil && errs.KindOf(got) != errs.Unavailable {
			t.Errorf("%s: kind %v", c.why, errs.KindOf(got))
		}
	}
}

func TestACheckThatHangsFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r readiness
		r.add("slow", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		start := time.Now()
		if v := r.look(t.Context()); v.Ready || time.Since(start) != checkTime {
			t.Errorf("ready %v after %v, want not ready after %v", v.Ready, time.Since(start), checkTime)
		}
	})
}

func TestReadyzAndTheRegistryAgree(t *testing.T) {
	url := startRegistry(t, plainConfig("registry", "reg"))
	c := plainConfig("decode", "d1")
	c.Registry, c.Meta = url, map[string]string{"broker": "kv-1"}
	s := newServer(t, c)
	var ill atomic.Bool
	ill.Store(true)
	s.Check("broker", func(context.Context) error {
		if ill.Load() {
			return errors.New("not attached")
		}
		return nil
	})
	running(t, s)
	sets, err := s.Registry.Watch(t.Context(), "decode")
	if err != nil {
		t.Fatal(err)
	}
	await(t, sets, "")
	if code, v := readyz(t, s); code != 503 || v.Ready || len(v.Checks) != 2 || v.Checks[1] != (result{"broker", false, "not attached"}) {
		t.Errorf("/readyz = %d %+v, want 503 and the reason", code, v)
	}
	ill.Store(false)
	set := await(t, sets, "d1")
	if want := (registry.Instance{Service: "decode", ID: "d1", Address: s.Addr(), Meta: c.Meta}); !set[0].Equal(want) {
		t.Errorf("listed %+v, want %+v", set[0], want)
	}
	if code, v := readyz(t, s); code != 200 || !v.Ready {
		t.Errorf("/readyz = %d %+v, want 200", code, v)
	}
	if _, body := get(t, "http://"+s.AdminAddr()+"/metrics"); !strings.Contains(body, "leasehold_ready 1\n") {
		t.Error("/metrics lacks leasehold_ready 1")
	}
	cc, err := s.Dial(set[0])
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	health := healthpb.NewHealthClient(cc)
	poll(t, "a serving health service", func() bool {
		resp, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetStatus() == healthpb.HealthCheckResponse_SERVING
	})
	ill.Store(true)
	await(t, sets, "")
}
