package decode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"leasehold.dev/gpu/tinymodel"
	"leasehold.dev/gpu/worker"
	"leasehold.dev/protos/errs"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

func TestAnAnswerAmongOthersEqualsItsRunAlone(t *testing.T) {
	g := newRig(t, tinymodel.Options{}, 32)
	g.startWorker(nil)
	ask := func(i int) (*reply, error) {
		req := g.request(5+31*i, 30, func(a *meshv1.Admission) { a.Tenant = fmt.Sprint("t", i%3) })
		if i%2 == 1 {
			req.Sampling = &decodev1.Sampling{IgnoreEos: true, Temperature: 0.8, TopK: 50, Seed: uint64(i), FrequencyPenalty: 0.3}
		}
		return g.generate(context.Background(), req, nil)
	}
	alone := make([]*reply, 6)
	for i := range alone {
		var err error
		if alone[i], err = ask(i); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	for i := range alone {
		all.Go(func() {
			r, err := ask(i)
			if err != nil {
				t.Errorf("request %d: %v", i, err)
			} else if !r.same(alone[i]) {
				t.Errorf("request %d: tokens %v, alone %v", i, r.ids, alone[i].ids)
			}
		})
	}
	all.Wait()
	g.allFree()
}

func TestASeedDecides(t *testing.T) {
	g := newRig(t, tinymodel.Options{}, 16)
	g.startWorker(nil)
	ask := func(seed uint64) *reply {
		req := g.request(40, 30, nil)
		req.Sampling = &decodev1.Sampling{IgnoreEos: true, Temperature: 1.5, Seed: seed}
		r, err := g.generate(context.Background(), req, nil)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	one := ask(1)
	if !one.same(ask(1)) {
		t.Error("one seed gave two answers")
	}
	if one.same(ask(2)) {
		t.Error("two seeds gave one answer")
	}
}

func TestAStopStringCutsTheAnswer(t *testing.T) {
	g := newRig(t, tinymodel.Options{}, 16)
	g.startWorker(nil)
	whole, err := g.generate(context.Background(), g.request(40, 30, nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	runes := []rune(whole.text)
	stop := string(runes[len(runes)/2 : len(runes)/2+6]) // longer than most tokens
	want, _, _ := strings.Cut(whole.text, stop)
	req := g.request(40, 30, nil)
	req.Sampling.Stop = []string{"never said", stop}
	r, err := g.generate(context.Background(), req, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.text != want || r.finished.Reason != decodev1.FinishReason_FINISH_REASON_STOP {
		t.Errorf("the text is %q, %v, want %q", r.text, r.finished.Reason, want)
	}
	if n := int(r.finished.CompletionTokens); n != len(r.ids) || n >= len(whole.ids) {
		t.Errorf("%d tokens are counted, %d were sent, the whole answer has %d", n, len(r.ids), len(whole.ids))
	}
	g.allFree()
}

// endless is a request that runs until something ends it.
func (g *rig) endless() *decodev1.GenerateRequest { return g.request(10, 900, nil) }

func forLong(c *worker.Config, _ *Options) { c.Promise = 16 * 64 }

func TestWhatEndsAStreamInTheMiddle(t *testing.T) {
	g := newRig(t, tinymodel.Options{}, 16)
	g.startWorker(forLong)
	other := g.attach("b0", "x0") // may write where it likes: a worker's pool is shared memory
	for _, tt := range []struct {
		name string
		harm func(cancel context.CancelFunc)
		is   error
		kind errs.Kind
	}{
		{"its client goes away", func(cancel context.CancelFunc) { cancel() }, context.Canceled, errs.Unavailable},
		{"its pages fill with NaN", func(context.CancelFunc) {
			for p := range g.pages {
				for b, i := other.Mapping().Page(p), 0; i < len(b); i++ {
					b[i] = 0xff
				}
			}
		}, nil, errs.Corrupt},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			tokens := 0
			r, err := g.generate(ctx, g.endless(), func(m *decodev1.GenerateResponse) {
				if m.GetTokens() == nil {
					return
				}
				if tokens++; tokens == 5 {
					tt.harm(cancel)
				}
			})
			if err == nil || errs.KindOf(err) != tt.kind || tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("Generate = %v, want %v", err, tt.kind)
			}
			if r.finished != nil {
				t.Errorf("it finished: %v", r.finished)
			}
			if tt.kind != errs.Corrupt { // pages that changed after their rows were counted stay in quarantine
				g.allFree()
			}
		})
	}
}

// A client that stops reading holds up neither the engine nor the lease.
func TestAClientThatDoesNotRead(t *testing.T) {
	g := newRig(t, tinymodel.Options{}, 16)
	g.startWorker(nil)
	reads := make(chan struct{})
	req := g.request(10, 100, nil)
	ended := make(chan error, 1)
	go func() {
		r, err := g.generate(context.Background(), req, func(m *decodev1.GenerateResponse) {
			if m.GetTokens() != nil {
				<-reads
			}
		})
		if err == nil && len(r.ids) != 100 {
			err = fmt.Errorf("%d tokens arrived, want 100", len(r.ids))
		}
		ended <- err
	}()
	g.until(func(s *meshv1.WorkerStatus) bool { return s.FreePages < g.pages })
	g.allFree() // although nothing was read
	close(reads)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestABrokerThatComesBack(t *testing.T) {
	g := newRig(t, tinymodel.Options{}, 16)
	g.startWorker(forLong)
	before := g.nodes["b0"].broker.Instance()
	closed := make(chan time.Time, 1)
	tokens := 0
	r, err := g.generate(context.Background(), g.endless(), func(m *decodev1.GenerateResponse) {
		if m.GetTokens() == nil {
			return
		}
		if tokens++; tokens == 5 {
			go func() { g.nodes["b0"].broker.Close(); closed <- time.Now() }()
		}
	})
	ended := time.Now()
	if errs.KindOf(err) != errs.Unavailable || err == nil || r.finished != nil {
		t.Errorf("Generate = %v, finished %v, want unavailable", err, r.finished)
	}
	if late := ended.Sub(<-closed); late > time.Second {
		t.Errorf("the stream ended %v after its broker", late)
	}
	g.until(func(s *meshv1.WorkerStatus) bool { return !s.Ready && s.Broker == "" })
	if _, err := g.generate(context.Background(), g.request(10, 5, nil), nil); errs.KindOf(err) != errs.Unavailable {
		t.Errorf("Generate without a broker = %v, want unavailable", err)
	}
	g.startBroker("b0")
	g.until(func(s *meshv1.WorkerStatus) bool { return s.Ready && !bytes.Equal(s.BrokerInstance, before) })
	if _, err := g.generate(context.Background(), g.request(10, 5, nil), nil); err != nil {
		t.Errorf("Generate after the restart = %v", err)
	}
	g.allFree()
}

func TestAWorkerThatDrainsFinishesWhatRuns(t *testing.T) {
	g := newRig(t, tinymodel.Options{}, 16)
	g.startWorker(nil)
	first := true
	r, err := g.generate(context.Background(), g.request(10, 50, nil), func(m *decodev1.GenerateResponse) {
		if m.GetTokens() == nil || !first {
			return
		}
		first = false
		g.host.Drain()
		if _, err := g.generate(context.Background(), g.request(10, 5, nil), nil); errs.KindOf(err) != errs.Unavailable {
			t.Errorf("Generate while it drains = %v, want unavailable", err)
		}
	})
	if err != nil || len(r.ids) != 50 {
		t.Errorf("the running one ended with %v after %d tokens, want 50", err, len(r.ids))
	}
}
