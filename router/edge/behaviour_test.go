package edge_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"leasehold.dev/protos/errs"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

const hi = `{"model":"` + name + `","messages":[{"role":"user","content":"Hi"}]}`

func TestARetryIsInvisible(t *testing.T) {
	w := newWorld(t)
	var once sync.Once
	fail := func(context.Context, *meshv1.Admission) (err error) {
		once.Do(func() { err = errs.New(errs.Unavailable, "gone") })
		return err
	}
	for _, id := range []string{"p1", "p2"} {
		w.NewPrefill(w.Status(id, "b1")).Do = fail
	}
	w.NewDecode(w.Status("d", "b2"))
	w.settle()
	w.eventually("both prefill workers are up", func() bool {
		ps := w.svc.Runner.Fleet.Snapshot().Prefill
		return len(ps) == 2 && ps[0].Up && ps[1].Up
	})
	res, sse := w.post("/v1/chat/completions", strings.Replace(hi, `"messages"`, `"stream":true,"messages"`, 1))
	if res.StatusCode != 200 || strings.Contains(sse, "error") || strings.Count(sse, `"role":"assistant"`) != 1 || !strings.HasSuffix(sse, "data: [DONE]\n\n") {
		t.Errorf("%d %s", res.StatusCode, sse)
	}
	if c := w.records.Last(1)[0].Choices[0]; c.Attempts != 2 || c.CompletionTokens != 4 {
		t.Errorf("record %+v, want two attempts", c)
	}
}

func TestAKeyThatIsTakenBackStopsWorking(t *testing.T) {
	w := newWorld(t)
	w.pair()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); w.svc.Keys.Watch(ctx, slog.New(slog.DiscardHandler)) }()
	defer func() { cancel(); <-done }()
	if res, _ := w.post("/v1/chat/completions", hi); res.StatusCode != 200 {
		t.Fatalf("%d before the change", res.StatusCode)
	}
	if err := os.WriteFile(w.keys, []byte("keys: [{tenant: acme, sha256: "+hashed("kn")+"}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.eventually("the old key is refused", func() bool { res, _ := w.post("/v1/chat/completions", hi); return res.StatusCode == 401 })
	if res, _ := w.send("POST", "/v1/chat/completions", hi, "Authorization: Bearer kn"); res.StatusCode != 200 {
		t.Errorf("%d with the new key", res.StatusCode)
	}
}

func TestPromptsAsTokenIDs(t *testing.T) {
	w := newWorld(t)
	_, d := w.pair()
	var n uint32
	d.Before = func(_ context.Context, a *meshv1.Admission) error { n = a.PromptTokens; return nil }
	for body, want := range map[string]uint32{`[1,2,3]`: 3, `"Once upon a time"`: 4, `["Once upon a time"]`: 4, `[5]`: 1} {
		res, got := w.post("/v1/completions", `{"model":"`+name+`","prompt":`+body+`}`)
		if res.StatusCode != 200 || n != want || !strings.Contains(got, fmt.Sprintf(`"prompt_tokens":%d,`, want)) {
			t.Errorf("%s: %d, %d tokens admitted, want %d: %s", body, res.StatusCode, n, want, got)
		}
	}
}

func TestWhatDecodeIsAsked(t *testing.T) {
	w := newWorld(t)
	_, d := w.pair()
	var seen *decodev1.Sampling
	d.Tokens = func(s *decodev1.Sampling, i int, text string) *decodev1.Tokens {
		seen = s
		return &decodev1.Tokens{Text: text, Tokens: []*decodev1.TokenInfo{{Id: int32(100 + i)}}}
	}
	w.post("/v1/chat/completions", strings.Replace(hi, `"messages"`, `"temperature":0.5,"top_k":7,"stop":["x","y"],"seed":3,"logit_bias":{"9":-1},"messages"`, 1))
	if seen.GetTemperature() != .5 || seen.GetTopK() != 7 || len(seen.GetStop()) != 2 || seen.GetSeed() != 3 || seen.GetLogitBias()[9] != -1 || seen.GetTopP() != 1 {
		t.Errorf("sampling %v", seen)
	}
	seeds := map[uint64]bool{}
	for range 3 {
		w.post("/v1/chat/completions", hi)
		seeds[seen.GetSeed()] = true
	}
	if len(seeds) != 3 {
		t.Errorf("%d seeds for three requests without one", len(seeds))
	}
}

// Row T5: one client request id twice is two requests.
func TestOneClientIDIsTwoRequests(t *testing.T) {
	w := newWorld(t)
	w.pair()
	var ids [2]string
	for i := range ids {
		res, _ := w.send("POST", "/v1/chat/completions", hi, "Authorization: Bearer ka", "X-Request-Id: same", "X-Client-Request-Id: same", "Idempotency-Key: same")
		ids[i] = res.Header.Get("X-Request-Id") + w.records.Last(1)[0].Choices[0].AdmissionID
	}
	if ids[0] == ids[1] {
		t.Errorf("both requests are %s", ids[0])
	}
}

// Many requests at once, some cancelled, some failing: each answer is its own, and nothing is left.
func TestManyAtOnceLeaveNothing(t *testing.T) {
	w := newWorld(t)
	p, d := w.pair()
	d.Tokens = func(s *decodev1.Sampling, i int, text string) *decodev1.Tokens {
		return &decodev1.Tokens{Text: fmt.Sprintf("<%d>%s", s.Seed, text), Tokens: []*decodev1.TokenInfo{{Id: int32(100 + i)}}}
	}
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(1, uint64(worker)))
			for i := range 25 {
				seed := worker*1000 + i
				body := strings.Replace(hi, `"messages"`, fmt.Sprintf(`"seed":%d,"stream":%v,"messages"`, seed, rnd.IntN(2) == 0), 1)
				ctx, cancel := context.WithCancel(t.Context())
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+"/v1/chat/completions", strings.NewReader(body))
				if err != nil {
					t.Error(err)
				}
				req.Header.Set("Authorization", "Bearer ka")
				res, err := client.Do(req)
				if err != nil {
					t.Error(err)
					cancel()
					continue
				}
				if rnd.IntN(4) == 0 {
					cancel()
				}
				b, err := io.ReadAll(res.Body)
				_ = res.Body.Close()
				cancel()
				if err != nil {
					continue // cancelled
				}
				if mark := fmt.Sprintf("<%d>", seed); strings.Count(string(b), mark) != 4 || strings.Count(string(b), "<") != 4 {
					t.Errorf("the answer of seed %d is %s", seed, b)
				}
			}
		})
	}
	wg.Wait()
	w.eventually("no call is left", func() bool { return p.Live.Load() == 0 && d.Live.Load() == 0 })
	w.eventually("no request runs", func() bool {
		for _, r := range w.records.Last(1000) {
			if r.Outcome == "running" {
				return false
			}
		}
		return true
	})
	f := w.svc.Runner.Fleet.Snapshot()
	if f.Prefill[0].Open != 0 || f.Decode[0].Open != 0 || !f.Prefill[0].Up || !f.Decode[0].Up {
		t.Errorf("fleet %+v", f)
	}
}
