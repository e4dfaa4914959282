package replay_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"leasehold.dev/mesh/boundary"
	"leasehold.dev/mesh/telemetry"
	"leasehold.dev/protos/errs"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/router/choose"
	"leasehold.dev/router/fleet"
	"leasehold.dev/router/flow"
	"leasehold.dev/router/meter"
	"leasehold.dev/router/receipt"
	"leasehold.dev/router/replay"
	"leasehold.dev/router/retry"
	"leasehold.dev/router/scripted"
)

// world is an auditor over scripted workers, and all that it says.
type world struct {
	*scripted.Mesh
	t         *testing.T
	auditor   *replay.Auditor
	runner    *flow.Runner
	log       bytes.Buffer
	mu        sync.Mutex
	incidents []replay.Incident
	tel       *telemetry.Telemetry
}

func newWorld(t *testing.T, p replay.Policy) *world {
	t.Helper()
	w := &world{Mesh: scripted.New(t), t: t}
	var err error
	if w.tel, err = telemetry.New(t.Context(), "router", "r", ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.tel.Close(context.Background()) })
	log := slog.New(slog.NewTextHandler(&w.log, nil))
	fl := fleet.New(w.Prefill, w.Decode, slog.New(slog.DiscardHandler))
	w.runner = &flow.Runner{Config: flow.Config{Fleet: fl, Key: w.Key, Model: choose.Model{Revision: string(w.Revision), Tokenizer: string(w.Tokenizer), Promise: 900},
		ModelName: "m", Default: 64, Times: flow.DefaultTimes, Budget: retry.NewBudget(0, 0), Meter: &meter.Meter{}, Log: slog.New(slog.DiscardHandler)}}
	seen, err := boundary.New(w.tel.Meter(), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	w.auditor = replay.New(replay.Config{Policy: p, Runner: w.runner, Boundary: seen, Log: log, Incident: func(i replay.Incident) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.incidents = append(w.incidents, i)
	}})
	if w.auditor.Metrics, err = replay.NewMetrics(w.tel.Meter(), w.auditor.Waiting); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { fl.Run(ctx) })
	wg.Go(func() { w.auditor.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return w
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			w.t.Fatalf("not within 10 s: %s; %s", what, w.seen())
		}
	}
}

// workers starts p, d and e, and waits for them.
func (w *world) workers() (d, e *scripted.Decode) {
	w.NewPrefill(w.Status("p", "b1"))
	for _, id := range []string{"d", "e"} {
		s := w.Status(id, "b-"+id)
		s.SelfPrefill = true
		d, e = e, w.NewDecode(s)
	}
	w.eventually("both are up", func() bool {
		f := w.runner.Fleet.Snapshot()
		return len(f.Decode) == 2 && f.Decode[0].Up && f.Decode[1].Up && len(f.Prefill) == 1 && f.Prefill[0].Up
	})
	return d, e
}

// answer runs a tenant's request on p and d.
func (w *world) answer(n int, s *decodev1.Sampling) *replay.Job {
	w.t.Helper()
	ids := make([]int32, n)
	f := w.runner.Fleet.Snapshot()
	d := f.Decode[0]
	if d.ID != "d" {
		d = f.Decode[1]
	}
	st, err := w.runner.On(w.t.Context(), flow.Job{Tenant: "acme", IDs: ids, Sampling: s}, choose.Route{Prefill: &f.Prefill[0], Decode: d,
		Mover: meshv1.Mover_MOVER_GRPC, Why: choose.SplitGRPC, MaxNew: 10})
	if err != nil {
		w.t.Fatal(err)
	}
	defer st.Close()
	for {
		_, fin, err := st.Next()
		if err != nil {
			w.t.Fatal(err)
		}
		if fin != nil {
			return replay.Of("r", ids, st.Account())
		}
	}
}

func (w *world) seen() string {
	rec := httptest.NewRecorder()
	w.auditor.ServeHTTP(rec, httptest.NewRequest("GET", "/debug/replays", nil))
	return rec.Body.String()
}

// ended waits for n replays and returns the last.
func (w *world) ended(n int) replay.Seen {
	w.t.Helper()
	var doc struct{ Replays []replay.Seen }
	w.eventually("replays end", func() bool {
		return json.Unmarshal([]byte(w.seen()), &doc) == nil && len(doc.Replays) == n
	})
	return doc.Replays[n-1]
}

func (w *world) metrics() string {
	rec := httptest.NewRecorder()
	w.tel.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	return rec.Body.String()
}

var always = replay.Policy{Share: 1, Budget: 1, Bytes: 1 << 20}

func TestAReplayIsUnsplitElsewhereAndEqual(t *testing.T) {
	w := newWorld(t, always)
	d, e := w.workers()
	how := &decodev1.Sampling{Temperature: 0.5, Seed: 9, Stop: []string{"zz"}}
	var mu sync.Mutex
	var got []*decodev1.Sampling
	var admitted []*meshv1.Admission
	e.Tokens = func(s *decodev1.Sampling, i int, text string) *decodev1.Tokens {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, s)
		return &decodev1.Tokens{Text: text, Tokens: []*decodev1.TokenInfo{{Id: int32(100 + i)}}}
	}
	e.Before = func(_ context.Context, a *meshv1.Admission) error {
		mu.Lock()
		defer mu.Unlock()
		admitted = append(admitted, a)
		return nil
	}
	j := w.answer(200, how)
	w.auditor.Finished(j)
	s := w.ended(1)
	if s.Result != replay.Equal || s.Elsewhere != "e" || s.Pair != "p/d" || s.Output != s.FirstOutput || s.Logits != s.FirstLogits || s.Logits == "" || s.Prompt != 200 || s.New != 4 {
		t.Errorf("%+v", s)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(admitted) != 1 || admitted[0].Mover != meshv1.Mover_MOVER_NONE || admitted[0].Prefill != "" || admitted[0].Tenant != "acme" || admitted[0].MaxNewTokens != 10 ||
		len(got) != 4 || got[0].Seed != 9 || got[0].Temperature != 0.5 || got[0].Stop[0] != "zz" {
		t.Errorf("run again as %v with %v", admitted, got)
	}
	if d.Calls.Load() != 1 || e.Calls.Load() != 1 {
		t.Errorf("d was called %d times, e %d", d.Calls.Load(), e.Calls.Load())
	}
	m := w.metrics()
	for _, want := range []string{`leasehold_router_replays_total{result="equal"} 1`, `leasehold_router_replays_taken_total{why="longest"} 1`, "leasehold_router_replay_tokens_total 204",
		`leasehold_property_last_observed_seconds{detector="replay",pair="p/d",property="P1"}`, `leasehold_boundary_incidents_total{detector="replay",property="P1"} 0`} {
		if !strings.Contains(m, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	if len(w.incidents) != 0 || w.log.Len() != 0 {
		t.Errorf("incidents %v, log %s", w.incidents, w.log.String())
	}
}

func TestADifferenceIsAnIncident(t *testing.T) {
	for why, c := range map[string]struct {
		twist func(e *scripted.Decode)
		want  replay.Result
	}{
		"another token": {func(e *scripted.Decode) { e.Text = []string{"The", " sky", " is"} }, replay.Different},
		"other logits": {func(e *scripted.Decode) {
			e.End = func(f *decodev1.Finished) { f.LogitDigest = scripted.Hash("other") }
		}, replay.Different},
		"a failed check": {func(e *scripted.Decode) {
			e.Before = func(context.Context, *meshv1.Admission) error { return errs.New(errs.Corrupt, "page 3 of 4") }
		}, replay.Broken},
		"verdicts that disagree": {func(e *scripted.Decode) { e.Twist = func(v *meshv1.DecodeVerdict) { v.Rows = 7 } }, replay.Broken},
		"a worker's bug": {func(e *scripted.Decode) {
			e.Before = func(context.Context, *meshv1.Admission) error { return errs.New(errs.Internal, "oops") }
		}, replay.Broken},
	} {
		t.Run(why, func(t *testing.T) {
			w := newWorld(t, always)
			_, e := w.workers()
			c.twist(e)
			w.auditor.Finished(w.answer(200, &decodev1.Sampling{Stop: []string{"secret"}}))
			if s := w.ended(1); s.Result != c.want {
				t.Errorf("%+v, want %s", s, c.want)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			if len(w.incidents) != 1 || w.incidents[0].Result != c.want || w.incidents[0].Tenant != "acme" || w.incidents[0].Pair != "p/d" || w.incidents[0].Elsewhere != "e" {
				t.Errorf("incidents %+v", w.incidents)
			}
			if log := w.log.String(); strings.Count(log, "level=ERROR") != 1 || strings.Contains(log, "secret") {
				t.Errorf("log %s", log)
			}
			if m := w.metrics(); !strings.Contains(m, `leasehold_boundary_incidents_total{detector="replay",property="P1"} 1`) {
				t.Error("the incident is not counted")
			}
		})
	}
}

func TestAReplayWaitsForTenants(t *testing.T) {
	w := newWorld(t, always)
	_, e := w.workers()
	full := w.Status("e", "b-e")
	full.SelfPrefill, full.QueuedTokens = true, 5000
	e.Say(full)
	queued := func(want uint32) func() bool {
		return func() bool {
			for _, d := range w.runner.Fleet.Snapshot().Decode {
				if d.ID == "e" {
					return d.Queued == want
				}
			}
			return false
		}
	}
	w.eventually("e is busy", queued(5000))
	w.auditor.Finished(w.answer(200, nil))
	w.eventually("it was put back", func() bool { return strings.Contains(w.metrics(), `leasehold_router_replays_total{result="busy"} 1`) })
	if n, b := w.auditor.Waiting(); n > 1 || b > 2000 || e.Calls.Load() != 0 {
		t.Errorf("%d wait in %d bytes, e was called %d times", n, b, e.Calls.Load())
	}
	free := w.Status("e", "b-e")
	free.SelfPrefill = true
	e.Say(free)
	if s := w.ended(1); s.Result != replay.Equal {
		t.Errorf("%+v", s)
	}
}

func TestAWorkerThatIsLostIsTriedAgain(t *testing.T) {
	w := newWorld(t, always)
	_, e := w.workers()
	e.Before = func(context.Context, *meshv1.Admission) error { return errs.New(errs.Unavailable, "going") }
	w.auditor.Finished(w.answer(200, nil))
	w.eventually("it is given up", func() bool {
		return strings.Contains(w.metrics(), `leasehold_router_replays_dropped_total{why="lost"} 1`)
	})
	if e.Calls.Load() != 3 || len(w.incidents) != 0 {
		t.Errorf("%d calls, incidents %v", e.Calls.Load(), w.incidents)
	}
}

func TestOffIsOff(t *testing.T) {
	w := newWorld(t, replay.Policy{Share: 1, Bytes: 1 << 20})
	_, e := w.workers()
	w.auditor.Finished(w.answer(200, nil))
	if n, _ := w.auditor.Waiting(); n != 0 || e.Calls.Load() != 0 || strings.Contains(w.metrics(), "last_observed") {
		t.Errorf("%d wait, e was called %d times", n, e.Calls.Load())
	}
}

// A report's replay is made from the receipt alone, and from what the tenant sends.
func TestAReportedReceipt(t *testing.T) {
	w := newWorld(t, replay.Policy{Bytes: 1}) // the audit is off: a report does not ask it
	d, e := w.workers()
	how := &decodev1.Sampling{Temperature: 0.5, Seed: 9, Stop: []string{"zz"}, LogitBias: map[int32]float32{3: 1}}
	f := w.runner.Fleet.Snapshot()
	st, err := w.runner.On(t.Context(), flow.Job{Tenant: "acme", IDs: make([]int32, 200), Sampling: how}, choose.Route{Prefill: &f.Prefill[0], Decode: f.Decode[0],
		Mover: meshv1.Mover_MOVER_GRPC, Why: choose.SplitGRPC, MaxNew: 10})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	for fin := (*decodev1.Finished)(nil); fin == nil; {
		if _, fin, err = st.Next(); err != nil {
			t.Fatal(err)
		}
	}
	c := receipt.Claims(receipt.ID{1}, scripted.Hash("request")[:16], 0, st.Account(), time.Now(), time.Now())
	ask := func() string { return w.auditor.Reported(t.Context(), c, make([]int32, 200), how.Stop) }
	if got := ask(); got != receipt.ReplayEqual {
		t.Errorf("as it was: %s", got)
	}
	if d.Calls.Load() != 1 || e.Calls.Load() != 1 { // the answer at one, the replay at the other
		t.Errorf("d was called %d times, e %d", d.Calls.Load(), e.Calls.Load())
	}
	c.LogitDigest = scripted.Hash("other")
	if got := ask(); got != receipt.ReplayDifferent {
		t.Errorf("other logits: %s", got)
	}
	c.Numerics = "another"
	if got := ask(); got != receipt.ReplayNotRun {
		t.Errorf("no worker of its class: %s", got)
	}
}
