package decode

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"leasehold.dev/gpu/tinymodel"
	"leasehold.dev/gpu/worker"
	"leasehold.dev/protos/errs"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/proof"
)

func TestSplitEqualsUnsplit(t *testing.T) {
	g := newRig(t, tinymodel.Options{}, 16)
	g.startWorker(nil)
	movers := []meshv1.Mover{meshv1.Mover_MOVER_LOCAL, meshv1.Mover_MOVER_GRPC}
	prefillers := []*prefiller{g.startPrefill(movers[0]), g.startPrefill(movers[1])}
	for _, n := range []int{2, 63, 64, 65, 66, 128, 129, 193} {
		for _, sampling := range []*decodev1.Sampling{
			{IgnoreEos: true},
			{IgnoreEos: true, Temperature: 0.9, TopP: 0.95, Seed: 42, RepetitionPenalty: 1.1},
		} {
			req := g.request(n, 20, nil)
			req.Sampling = sampling
			whole, err := g.generate(context.Background(), req, nil)
			if err != nil {
				t.Fatal(err)
			}
			if v := whole.verdict; !v.Unsplit || v.Rows != 0 || v.Pages != 0 || len(v.Root) != 0 || whole.admitted.ExpectedPages != 0 {
				t.Errorf("n %d: the unsplit verdict is %v", n, v)
			}
			if f := whole.finished; int(f.PromptTokens) != n || f.CompletionTokens != 20 || len(whole.ids) != 20 || f.Reason != decodev1.FinishReason_FINISH_REASON_LENGTH {
				t.Errorf("n %d: finished with %v after %d tokens", n, f, len(whole.ids))
			}
			for i, m := range movers {
				req := g.request(n, 20, by(m))
				req.Sampling = sampling
				r, err := g.generateSplit(req, prefillers[i], uint32(n-1))
				if err != nil {
					t.Fatalf("n %d, %v: %v", n, m, err)
				}
				if !r.same(whole) {
					t.Errorf("n %d, %v: tokens %v, unsplit %v; logits equal: %v", n, m, r.ids, whole.ids,
						string(r.finished.LogitDigest) == string(whole.finished.LogitDigest))
				}
				v, pages := r.verdict, proof.Pages(uint32(n), 0)
				if v.Unsplit || int(v.Rows) != n-1 || v.Pages != pages || v.ExpectedPages != pages || v.Mover != m || len(v.Root) != 32 {
					t.Errorf("n %d, %v: the verdict is %v", n, m, v)
				}
				if r.admitted.ExpectedPages != pages || int(r.admitted.Pages) != (n+20-1+63)/64 || int(r.finished.PromptTokens) != n {
					t.Errorf("n %d, %v: admitted %v, %d prompt tokens", n, m, r.admitted, r.finished.PromptTokens)
				}
				g.allFree()
			}
		}
	}
}

// H13: the numbers are right, the rows are not there.
func TestPagesThatWereNeverWrittenAreRefused(t *testing.T) {
	g := newRig(t, tinymodel.Options{}, 16)
	g.startWorker(nil)
	for _, m := range []meshv1.Mover{meshv1.Mover_MOVER_LOCAL, meshv1.Mover_MOVER_GRPC} {
		p := g.startPrefill(m)
		for _, n := range []int{3, 64, 65, 200} {
			req := g.request(n, 20, by(m))
			r, err := g.generateSplit(req, p, 1)
			if errs.KindOf(err) != errs.Corrupt || err == nil {
				t.Errorf("n %d, %v: Generate = %v, want corrupt", n, m, err)
			}
			if r.verdict != nil || len(r.ids) > 0 || r.finished != nil {
				t.Errorf("n %d, %v: a verdict %v and %d tokens came from pages that nobody wrote", n, m, r.verdict, len(r.ids))
			}
			g.allFree()
		}
	}
}

func TestPrefillsRefusalEndsTheStream(t *testing.T) {
	g := newRig(t, tinymodel.Options{}, 16)
	g.startWorker(nil)
	for _, m := range []meshv1.Mover{meshv1.Mover_MOVER_LOCAL, meshv1.Mover_MOVER_GRPC} {
		p := g.attach(source(m), "p0")
		req := g.request(100, 20, by(m))
		var refused time.Time
		r, err := g.generate(context.Background(), req, func(e *decodev1.GenerateResponse) {
			if e.GetAdmitted() == nil {
				return
			}
			refused = time.Now()
			if err := p.Refuse(context.Background(), req.Admission, errs.New(errs.Limit, "a prompt of 100 tokens, the limit is 64")); err != nil {
				t.Error(err)
			}
		})
		if errs.KindOf(err) != errs.Limit || !strings.Contains(err.Error(), "a prompt of 100 tokens, the limit is 64") {
			t.Errorf("%v: Generate = %v, want prefill's own error", m, err)
		}
		if took := time.Since(refused); took > time.Second || len(r.ids) > 0 {
			t.Errorf("%v: ended after %v with %d tokens", m, took, len(r.ids))
		}
		g.allFree()
		_ = p.Close()
	}
}

func TestLimitsAreChecked(t *testing.T) {
	for _, tt := range []struct {
		name           string
		promise, pages int
		n, fresh       int
		ok             bool
	}{
		{"one below the promise", 256, 16, 200, 55, true},
		{"the promise", 256, 16, 200, 56, true},
		{"one above the promise", 256, 16, 200, 57, false},
		{"a prompt above the promise", 256, 16, 300, 1, false},
		{"new tokens that nobody could hold", 256, 16, 10, 1 << 31, false},
		{"one below the pool", 256, 4, 1, 254, true},
		{"the pool", 256, 4, 1, 255, true},
		{"one above the pool", 256, 4, 1, 256, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t, tinymodel.Options{}, uint32(tt.pages))
			g.startWorker(func(c *worker.Config, _ *Options) { c.Promise = tt.promise })
			r, err := g.generate(context.Background(), g.request(tt.n, tt.fresh, nil), nil)
			if (err == nil) != tt.ok {
				t.Fatalf("Generate = %v, want ok %v", err, tt.ok)
			}
			if tt.ok && len(r.ids) != tt.fresh {
				t.Errorf("%d tokens, want %d", len(r.ids), tt.fresh)
			}
			want := fmt.Sprintf("a prompt of %d and %d new tokens, this worker's limit is 256", tt.n, tt.fresh)
			if !tt.ok && (errs.KindOf(err) != errs.Limit || !strings.Contains(err.Error(), want) || r.admitted != nil) {
				t.Errorf("Generate = %v, admitted %v, want a limit error: ...%s...", err, r.admitted, want)
			}
			g.allFree()
		})
	}
}

// What is refused before a page is reserved.
func TestGenerateRefuses(t *testing.T) {
	g := newRig(t, tinymodel.Options{}, 16)
	g.startWorker(func(_ *worker.Config, o *Options) { o.SelfPrefill = -1 })
	for _, tt := range []struct {
		name   string
		n      int
		change func(*meshv1.Admission)
		forge  func(*decodev1.GenerateRequest)
		kind   errs.Kind
	}{
		{name: "no admission", n: 1, forge: func(r *decodev1.GenerateRequest) { r.Admission = nil }, kind: errs.Corrupt},
		{name: "a signature of somebody else", n: 1, forge: func(r *decodev1.GenerateRequest) { r.Admission.Signature[0]++ }, kind: errs.Corrupt},
		{name: "ids of another prompt", n: 1, forge: func(r *decodev1.GenerateRequest) { r.TokenIds[0]++ }, kind: errs.Corrupt},
		{name: "an admission for another worker", n: 1, change: func(a *meshv1.Admission) { a.Decode = "d1" }, kind: errs.Invalid},
		{name: "a prompt without prefill, where decode computes none", n: 2, kind: errs.Invalid},
		{name: "a temperature below zero", n: 1, forge: func(r *decodev1.GenerateRequest) { r.Sampling.Temperature = -1 }, kind: errs.Invalid},
		{name: "an empty stop string", n: 1, forge: func(r *decodev1.GenerateRequest) { r.Sampling.Stop = []string{""} }, kind: errs.Invalid},
		{name: "a prefill broker that is not there", n: 9, change: func(a *meshv1.Admission) {
			by(meshv1.Mover_MOVER_GRPC)(a)
			a.PrefillBroker = "b9"
		}, kind: errs.Unavailable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req := g.request(tt.n, 5, tt.change)
			if tt.forge != nil {
				tt.forge(req)
			}
			r, err := g.generate(context.Background(), req, nil)
			if err == nil || errs.KindOf(err) != tt.kind || r.admitted != nil {
				t.Errorf("Generate = %v, admitted %v, want %v", err, r.admitted, tt.kind)
			}
			g.allFree()
		})
	}
}

func TestWithoutAMoverItIsNotReady(t *testing.T) {
	g := newRig(t, tinymodel.Options{}, 4)
	g.startWorker(nil)
	g.svc = NewService(g.host, Options{})
	if err := g.svc.Ready(context.Background()); err == nil || !strings.Contains(err.Error(), "no mover") {
		t.Errorf("Ready = %v, want that there is no mover", err)
	}
	if s := g.svc.status(); s.Ready || !strings.Contains(s.Reason, "no mover") {
		t.Errorf("status is ready %v: %s", s.Ready, s.Reason)
	}
}

func TestAFullPoolIsExhausted(t *testing.T) {
	g := newRig(t, tinymodel.Options{}, 4)
	g.startWorker(nil)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	running := make(chan struct{})
	go func() {
		first := true
		_, err := g.generate(ctx, g.request(10, 240, nil), func(m *decodev1.GenerateResponse) {
			if m.GetTokens() != nil && first {
				first = false
				close(running)
			}
		})
		ended <- err
	}()
	<-running
	if _, err := g.generate(context.Background(), g.request(10, 60, nil), nil); errs.KindOf(err) != errs.Exhausted {
		t.Errorf("Generate in a full pool = %v, want exhausted", err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the first ended with %v", err)
	}
	g.allFree()
	if _, err := g.generate(context.Background(), g.request(10, 60, nil), nil); err != nil {
		t.Errorf("Generate afterwards = %v", err)
	}
}
