package limits_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"leasehold.dev/mesh/boundary"
	"leasehold.dev/mesh/telemetry"
	"leasehold.dev/router/choose"
	"leasehold.dev/router/limits"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// workers is a fleet that a test changes.
type workers struct {
	mu      sync.Mutex
	now     choose.Fleet
	changed chan struct{}
}

func (w *workers) Changed() <-chan struct{} { w.mu.Lock(); defer w.mu.Unlock(); return w.changed }
func (w *workers) Snapshot() choose.Fleet   { w.mu.Lock(); defer w.mu.Unlock(); return w.now }

// become changes the fleet to one pair with these numbers.
func (w *workers) become(p, d [2]uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	one := func(id string, n [2]uint32) []choose.Worker {
		return []choose.Worker{{ID: id, Broker: "b", Instance: "i-" + id, ModelRevision: "w", TokenizerRevision: "t", LayoutHash: "l", Numerics: "n",
			Promised: n[0], Limit: n[1], GRPC: true, Up: true}}
	}
	w.now = choose.Fleet{Prefill: one("p", p), Decode: one("d", d)}
	close(w.changed)
	w.changed = make(chan struct{})
}

// rig runs a Checker in a bubble of its own time.
type rig struct {
	*workers
	tel   *telemetry.Telemetry
	bound *boundary.Recorder
	log   bytes.Buffer
}

func inBubble(t *testing.T, promise uint32, f func(*rig)) {
	synctest.Test(t, func(t *testing.T) {
		tel, err := telemetry.New(t.Context(), "router", "r", "")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tel.Close(context.Background()) }()
		g := &rig{workers: &workers{changed: make(chan struct{})}, tel: tel}
		if g.bound, err = boundary.New(tel.Meter(), time.Now); err != nil {
			t.Fatal(err)
		}
		c, err := limits.New(g, choose.Model{Revision: "w", Tokenizer: "t", Promise: promise}, tel.Meter(), g.bound, slog.New(slog.NewTextHandler(&g.log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { c.Run(ctx) })
		synctest.Wait()
		f(g)
		cancel()
		wg.Wait()
	})
}

func (g *rig) metric(t *testing.T, line string) {
	t.Helper()
	rec := httptest.NewRecorder()
	g.tel.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	if !strings.Contains(rec.Body.String(), "\n"+line+"\n") {
		t.Errorf("/metrics lacks %s; log:\n%s", line, g.log.String())
	}
}

func TestAGapIsCountedOnceAndShownWhileItLasts(t *testing.T) {
	inBubble(t, 1000, func(g *rig) {
		g.become([2]uint32{1000, 1000}, [2]uint32{1000, 1000})
		synctest.Wait()
		g.metric(t, `leasehold_router_limit_gaps{service="prefill"} 0`)
		g.metric(t, `leasehold_boundary_incidents_total{detector="limits",property="P5"} 0`)
		g.become([2]uint32{1000, 681}, [2]uint32{1000, 1000})
		synctest.Wait()
		time.Sleep(3 * limits.Every)
		synctest.Wait()
		g.metric(t, `leasehold_router_limit_gaps{service="prefill"} 1`)
		g.metric(t, `leasehold_router_limit_gaps{service="router"} 1`)
		g.metric(t, `leasehold_boundary_incidents_total{detector="limits",property="P5"} 2`)
		if n := strings.Count(g.log.String(), "level=ERROR"); n != 2 || !strings.Contains(g.log.String(), "service=prefill worker=p promised=1000 derived=681") {
			t.Errorf("%d error lines, want 2 with both numbers:\n%s", n, g.log.String())
		}
		g.become([2]uint32{681, 681}, [2]uint32{1000, 1000})
		synctest.Wait()
		g.metric(t, `leasehold_router_limit_gaps{service="prefill"} 0`)
		if !strings.Contains(g.log.String(), "fits again") {
			t.Errorf("the end of the gap is not in the log:\n%s", g.log.String())
		}
	})
}

func TestOnlyALookThatCouldTellIsOne(t *testing.T) {
	inBubble(t, 1000, func(g *rig) {
		start, ok := g.bound.Last(boundary.P5, boundary.Limits, "")
		if !ok {
			t.Fatal("the detector is not expected")
		}
		time.Sleep(time.Minute)
		if at, _ := g.bound.Last(boundary.P5, boundary.Limits, ""); at != start {
			t.Errorf("a fleet of nobody was looked at, at %v", at)
		}
		g.become([2]uint32{0, 0}, [2]uint32{1000, 1000})
		time.Sleep(time.Minute)
		if at, _ := g.bound.Last(boundary.P5, boundary.Limits, ""); at != start {
			t.Errorf("a worker without numbers was looked at, at %v", at)
		}
		g.become([2]uint32{1000, 1000}, [2]uint32{1000, 1000})
		time.Sleep(time.Minute)
		synctest.Wait()
		if at, _ := g.bound.Last(boundary.P5, boundary.Limits, ""); time.Since(at) > limits.Every {
			t.Errorf("last look %v ago, want at most %v: nothing changed, but it goes on", time.Since(at), limits.Every)
		}
	})
}
