package prefill

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"leasehold.dev/gpu/tinymodel"
	"leasehold.dev/gpu/worker"
	"leasehold.dev/protos/errs"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	prefillv1 "leasehold.dev/protos/gen/leasehold/prefill/v1"
	"leasehold.dev/protos/proof"
)

func TestRunSaysWhatTheDecodeSideVerifies(t *testing.T) {
	g := newRig(t, tinymodel.Options{}, 16)
	g.startWorker(nil)
	d := g.decode()
	for _, n := range []int{2, 3, 64, 65, 66, 128, 129, 200} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			req := g.request(n, 70, nil)
			dst := g.reserve(d, req, 70)
			resp, err := g.svc.Run(context.Background(), req)
			if err != nil {
				t.Fatal(err)
			}
			owned, err := dst.AwaitOwned(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			v, c := resp.Verdict, owned.Completion()
			if int(v.Rows) != n-1 || v.Rows != owned.Rows() || v.Pages != proof.Pages(uint32(n), 0) || v.Pages != c.Pages || v.FromToken != 0 {
				t.Errorf("prefill says %d rows in %d pages, decode found %d in %d, want %d in %d", v.Rows, v.Pages, owned.Rows(), c.Pages, n-1, proof.Pages(uint32(n), 0))
			}
			for what, pair := range map[string][2][]byte{
				"root":           {v.Root, c.Root},
				"lease":          {v.LeaseHash, c.Lease},
				"instance":       {v.Instance, g.broker.Instance()},
				"prompt digest":  {v.PromptDigest, c.PromptDigest},
				"admission":      {v.AdmissionId, c.AdmissionId},
				"model revision": {v.ModelRevision, g.revision()},
				"layout":         {v.LayoutHash, c.LayoutHash},
			} {
				if len(pair[0]) == 0 || !bytes.Equal(pair[0], pair[1]) {
					t.Errorf("%s is %x, want %x", what, pair[0], pair[1])
				}
			}
			if v.Epoch != c.Epoch || v.ComputeUs == 0 || v.SpanUs == 0 || v.SpanUs > v.ComputeUs+1000 {
				t.Errorf("epoch %d, want %d; %d us of compute, %d from first step on", v.Epoch, c.Epoch, v.ComputeUs, v.SpanUs)
			}
			retire(t, dst, true)
			g.allFree()
		})
	}
}

// The limit here comes from the model's context, 256 tokens, and not from the pool.
func TestLimitsAreChecked(t *testing.T) {
	g := newRig(t, tinymodel.Options{Context: 256}, 16)
	g.startWorker(func(c *worker.Config) { c.Promise = 256 })
	d := g.decode()
	for _, tt := range []struct {
		n  int
		ok bool
	}{{255, true}, {256, true}, {257, false}, {700, false}} {
		t.Run(fmt.Sprint(tt.n), func(t *testing.T) {
			req := g.request(tt.n, 70, nil)
			dst := g.reserve(d, req, 70)
			began := time.Now()
			_, err := g.svc.Run(context.Background(), req)
			if (err == nil) != tt.ok {
				t.Fatalf("Run = %v, want ok %v", err, tt.ok)
			}
			_, heard := dst.AwaitOwned(context.Background())
			retire(t, dst, tt.ok)
			g.allFree()
			if tt.ok {
				return
			}
			want := fmt.Sprintf("a prompt of %d tokens, this worker's limit is 256", tt.n)
			for who, err := range map[string]error{"prefill": err, "decode": heard} {
				if errs.KindOf(err) != errs.Limit || !strings.Contains(err.Error(), want) {
					t.Errorf("%s says %v, want a limit error: ...%s...", who, err, want)
				}
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("decode heard after %v, want under a second", took)
			}
		})
	}
}

func TestARefusalReachesTheDecodeSide(t *testing.T) {
	g := newRig(t, tinymodel.Options{}, 16)
	g.startWorker(func(c *worker.Config) { c.Queue = 1 })
	d := g.decode()
	// A place in the queue that is never started: the next request finds it full.
	link, err := g.host.Link()
	if err != nil {
		t.Fatal(err)
	}
	defer link.Release()
	req := g.request(100, 10, nil)
	dst := g.reserve(d, req, 10)
	held, err := link.Admit("other", 1, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = g.svc.Run(context.Background(), req)
	if errs.KindOf(err) != errs.Exhausted {
		t.Errorf("Run with a full queue = %v, want exhausted", err)
	}
	if _, heard := dst.AwaitOwned(context.Background()); errs.KindOf(heard) != errs.Exhausted || !strings.Contains(heard.Error(), "1 requests wait") {
		t.Errorf("decode hears %v, want prefill's own error", heard)
	}
	retire(t, dst, false)
	held.Cancel(context.Canceled)
	g.allFree()
}

// After the lease: what was counted differs, so nobody may try the request again.
func TestTheKindOfAFailureReachesTheDecodeSide(t *testing.T) {
	g := newRig(t, tinymodel.Options{}, 16)
	g.startWorker(nil)
	d := g.decode()
	for _, want := range []errs.Kind{errs.Corrupt, errs.Unavailable} {
		link, err := g.host.Link()
		if err != nil {
			t.Fatal(err)
		}
		req := g.request(100, 10, nil)
		dst := g.reserve(d, req, 10)
		j, err := g.svc.reserve(context.Background(), link, req)
		link.Release()
		if err != nil {
			t.Fatal(err)
		}
		j.end(errs.New(want, "98 rows were appended, the prompt needs 99"))
		j.cancel()
		close(j.through)
		if _, heard := dst.AwaitOwned(context.Background()); heard == nil || errs.KindOf(heard) != want || !strings.Contains(heard.Error(), "98 rows") {
			t.Errorf("decode hears %v, want prefill's own error, %v", heard, want)
		}
		retire(t, dst, false)
		g.allFree()
	}
}

// What is refused before a page is reserved, whoever waits.
func TestRunRefuses(t *testing.T) {
	g := newRig(t, tinymodel.Options{}, 16)
	g.startWorker(nil)
	for _, tt := range []struct {
		name   string
		n      int
		change func(*meshv1.Admission)
		forge  func(*prefillv1.RunRequest)
		kind   errs.Kind
	}{
		{name: "no admission", n: 9, forge: func(r *prefillv1.RunRequest) { r.Admission = nil }, kind: errs.Corrupt},
		{name: "a signature of somebody else", n: 9, forge: func(r *prefillv1.RunRequest) { r.Admission.Signature[0]++ }, kind: errs.Corrupt},
		{name: "ids of another prompt", n: 9, forge: func(r *prefillv1.RunRequest) { r.TokenIds[3]++ }, kind: errs.Corrupt},
		{name: "an admission for another worker", n: 9, change: func(a *meshv1.Admission) { a.Prefill = "p1" }, kind: errs.Invalid},
		{name: "an admission without prefill", n: 9, change: func(a *meshv1.Admission) {
			a.Mover, a.Prefill, a.PrefillBroker = meshv1.Mover_MOVER_NONE, "", ""
		}, kind: errs.Invalid},
		{name: "a prompt of one token", n: 1, kind: errs.Invalid},
		{name: "no Pull that waits", n: 9, kind: errs.Unavailable},
		{name: "a deadline that has passed", n: 9, change: func(a *meshv1.Admission) { a.DeadlineUnixMs = 1 }, kind: errs.Unavailable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req := g.request(tt.n, 10, tt.change)
			if tt.forge != nil {
				tt.forge(req)
			}
			if _, err := g.svc.Run(context.Background(), req); err == nil || errs.KindOf(err) != tt.kind {
				t.Errorf("Run = %v, want %v", err, tt.kind)
			}
			g.allFree()
		})
	}
}

// long is a prompt that takes many steps; a pool of 64 pages holds it.
const long = 3000

// start runs a long prompt and returns once its sequence computes.
func (g *rig) start(ctx context.Context, req *prefillv1.RunRequest) <-chan error {
	ended := make(chan error, 1)
	go func() {
		_, err := g.svc.Run(ctx, req)
		ended <- err
	}()
	g.until(func(s *meshv1.WorkerStatus) bool { return s.Sequences == 1 })
	if err := g.host.Ready(ctx); err != nil {
		g.t.Errorf("not ready while it computes: %v", err)
	}
	return ended
}

func TestWhatEndsARunInTheMiddle(t *testing.T) {
	g := newRig(t, tinymodel.Options{}, 64)
	g.startWorker(func(c *worker.Config) { c.Chunk = 1 })
	d := g.decode()
	t.Run("its caller goes away", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		req := g.request(long, 10, nil)
		dst := g.reserve(d, req, 10)
		ended := g.start(ctx, req)
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v, want canceled", err)
		}
		if _, err := dst.AwaitOwned(context.Background()); err == nil {
			t.Error("decode owns pages that nobody finished")
		}
		retire(t, dst, false)
		g.allFree()
	})
	t.Run("the decode side gives up", func(t *testing.T) {
		req := g.request(long, 10, nil)
		dst := g.reserve(d, req, 10)
		ended := g.start(context.Background(), req)
		retire(t, dst, false)
		if err := <-ended; err == nil || errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v, want that the lease was revoked", err)
		}
		g.allFree()
	})
	t.Run("its deadline", func(t *testing.T) {
		req := g.request(long, 10, func(a *meshv1.Admission) { a.DeadlineUnixMs = time.Now().Add(300 * time.Millisecond).UnixMilli() })
		dst := g.reserve(d, req, 10)
		if _, err := g.svc.Run(context.Background(), req); err == nil {
			t.Error("Run ended well after its deadline")
		}
		retire(t, dst, false)
		g.allFree()
	})
}

func TestABrokerThatComesBack(t *testing.T) {
	g := newRig(t, tinymodel.Options{}, 64)
	g.startWorker(func(c *worker.Config) { c.Chunk = 1 })
	d := g.decode()
	req := g.request(long, 10, nil)
	g.reserve(d, req, 10)
	ended := g.start(context.Background(), req)
	before := g.broker.Instance()
	began := time.Now()
	g.broker.Close()
	if err := <-ended; errs.KindOf(err) != errs.Unavailable {
		t.Errorf("Run = %v, want unavailable", err)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("Run ended %v after its broker", took)
	}
	g.until(func(s *meshv1.WorkerStatus) bool { return !s.Ready && s.Broker == "" })
	if _, err := g.svc.Run(context.Background(), req); errs.KindOf(err) != errs.Unavailable {
		t.Errorf("Run without a broker = %v, want unavailable", err)
	}
	g.startBroker()
	g.until(func(s *meshv1.WorkerStatus) bool { return s.Ready && !bytes.Equal(s.BrokerInstance, before) })
	again := g.decode()
	req = g.request(100, 10, nil)
	dst := g.reserve(again, req, 10)
	if _, err := g.svc.Run(context.Background(), req); err != nil {
		t.Fatal(err)
	}
	if _, err := dst.AwaitOwned(context.Background()); err != nil {
		t.Fatal(err)
	}
	retire(t, dst, true)
	g.allFree()
}

func TestManyPromptsAtOnce(t *testing.T) {
	g := newRig(t, tinymodel.Options{}, 32)
	g.startWorker(func(c *worker.Config) { c.Queue = 16 }) // a tenant fills half of it
	d := g.decode()
	ended := make(chan error)
	sizes := []int{2, 65, 130, 200, 300}
	for _, n := range sizes {
		req := g.request(n, 10, nil)
		dst := g.reserve(d, req, 10)
		go func() {
			_, err := g.svc.Run(context.Background(), req)
			if err == nil {
				_, err = dst.AwaitOwned(context.Background())
			}
			ended <- errors.Join(err, dst.Retire(context.Background(), err == nil, "", nil))
		}()
	}
	for range sizes {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	g.allFree()
}

func TestWithoutGuardsPagesAreDigestedAtRest(t *testing.T) {
	g := newRig(t, tinymodel.Options{}, 16)
	g.startWorker(func(c *worker.Config) { c.GuardsOff = true })
	req := g.request(200, 10, nil)
	dst := g.reserve(g.decode(), req, 10)
	if _, err := g.svc.Run(context.Background(), req); err != nil {
		t.Fatal(err)
	}
	if _, err := dst.AwaitOwned(context.Background()); err != nil {
		t.Fatal(err)
	}
	if g.svc.status().GuardsOn {
		t.Error("the status says that guards are on")
	}
	retire(t, dst, true)
	g.allFree()
}
