package worker

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"leasehold.dev/gpu/pool"
	"leasehold.dev/gpu/runner"
	"leasehold.dev/protos/errs"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

func ready(s *meshv1.WorkerStatus) bool { return s.Ready }

func TestNotReadySaysWhy(t *testing.T) {
	other := bytes.Repeat([]byte{7}, 32)
	for _, tt := range []struct {
		name   string
		change func(*Config, *rig)
		after  func(*rig) // before the host runs
		want   []string   // parts of the reason
	}{
		{name: "no broker", after: func(g *rig) { g.refusing = errs.New(errs.Unavailable, "nobody listens") }, want: []string{"nobody listens"}},
		{name: "another layout", after: func(g *rig) { g.facts.LayoutHash = other }, want: []string{"layout hash is ", "broker b0 has 0707"}},
		{name: "other weights", after: func(g *rig) { g.facts.ModelRevision = other }, want: []string{"model revision is ", "has 0707"}},
		{name: "another tokenizer", after: func(g *rig) { g.facts.TokenizerRevision = other }, want: []string{"tokenizer revision is ", "has 0707"}},
		{name: "another numerics class", after: func(g *rig) { g.facts.NumericsClass = "x86-fma-1" }, want: []string{"numerics class is ref-1, broker b0 has x86-fma-1"}},
		{name: "pages of another size", after: func(g *rig) { g.facts.PageBytes++ }, want: []string{"pages have 32768 bytes, those of broker b0 32769"}},
		{name: "a pool below the promise, by one token", change: func(c *Config, _ *rig) { c.Promise = pages*64 + 1 },
			want: []string{"derived limit of 512 tokens (8 pages of 64, context of 2048) is below the promise of 513"}},
		{name: "the model's context as the promise", change: func(c *Config, _ *rig) { c.Promise = 0 },
			want: []string{"derived limit of 512 tokens", "below the promise of 2048"}},
		{name: "a context below the promise", change: func(c *Config, _ *rig) { c.Promise = 4096 }, after: func(g *rig) { g.facts.PoolPages = 1000 },
			want: []string{"derived limit of 2048 tokens (1000 pages of 64, context of 2048) is below the promise of 4096"}},
		{name: "a broker that drains", after: func(g *rig) { g.state.Draining = true }, want: []string{"broker b0 drains"}},
		{name: "a worker that drains", after: func(g *rig) { g.Drain() }, want: []string{"it drains"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t, tt.change)
			if tt.after != nil {
				tt.after(g)
			}
			g.start(t)
			s := g.until(t, func(s *meshv1.WorkerStatus) bool { return strings.Contains(s.Reason, tt.want[0]) })
			err := g.Ready(context.Background())
			if s.Ready || errs.KindOf(err) != errs.Unavailable {
				t.Errorf("ready: %v, check %v", s.Ready, err)
			}
			for _, want := range tt.want {
				if !strings.Contains(s.Reason, want) || err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("reason %q, check %v, want ...%s...", s.Reason, err, want)
				}
			}
		})
	}
}

func TestAPromiseThatJustFitsIsReady(t *testing.T) {
	g := newRig(t, nil)
	g.start(t)
	s := g.until(t, ready)
	if s.LimitTokens != pages*64 || s.PromisedTokens != pages*64 || s.PoolPages != pages || s.FreePages != pages {
		t.Errorf("limit %d, promise %d, %d of %d pages free, want %d, %d, %d of %d", s.LimitTokens, s.PromisedTokens, s.FreePages, s.PoolPages,
			pages*64, pages*64, pages, pages)
	}
	if s.Id != "w0" || s.Broker != "b0" || string(s.BrokerInstance) != "instance" || s.NumericsClass != "ref-1" || !s.GuardsOn || s.Model != "tiny" {
		t.Errorf("status is %v", s)
	}
	if err := g.Ready(context.Background()); err != nil {
		t.Errorf("check: %v", err)
	}
	g.set(func(g *rig) { // everything that agree compares is said at the attach
		if err := g.agree(g.asked); err != nil {
			t.Errorf("the broker was asked for something else: %v", err)
		}
	})
}

type endless struct{ stepped chan struct{} }

func (e endless) Step(o runner.Outcome) (int32, bool, error) {
	select {
	case e.stepped <- struct{}{}:
	default:
	}
	return 1, true, nil
}

type lease struct {
	revoked chan struct{}
	err     error
}

func (l lease) Revoked() <-chan struct{} { return l.revoked }
func (l lease) RevokeErr() error         { return l.err }

// run starts an endless sequence on page 0 of the present link, bound to l.
func (g *rig) run(ctx context.Context, t *testing.T, l lease) (*runner.Task, context.Context, context.CancelCauseFunc, chan error) {
	t.Helper()
	link, err := g.Link()
	if err != nil {
		t.Fatal(err)
	}
	defer link.Release()
	task, err := link.Admit("acme", 3, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	tag := pool.MakeTag(1, 5)
	link.Broker.owner.StoreTag(0, tag)
	after := make(chan error, 2)
	life, end := link.Bind(ctx, task, l, func(err error) { after <- err })
	h := endless{make(chan struct{})}
	if err := task.Start(runner.Sequence{Pages: []uint32{0}, Tags: []pool.Tag{tag}, Tokens: []int32{1, 2, 3}, Logits: true, Handler: h}); err != nil {
		t.Fatal(err)
	}
	<-h.stepped
	return task, life, end, after
}

func TestWhatEndsABoundTask(t *testing.T) {
	revoked := errs.New(errs.Corrupt, "the lease was revoked")
	for _, tt := range []struct {
		name string
		end  func(g *rig, h *handle, cancel context.CancelFunc, l lease, end context.CancelCauseFunc)
		want string
	}{
		{"its caller goes away", func(_ *rig, _ *handle, cancel context.CancelFunc, _ lease, _ context.CancelCauseFunc) { cancel() }, "context canceled"},
		{"its lease is revoked", func(_ *rig, _ *handle, _ context.CancelFunc, l lease, _ context.CancelCauseFunc) { close(l.revoked) }, revoked.Error()},
		{"its broker is gone", func(_ *rig, h *handle, _ context.CancelFunc, _ lease, _ context.CancelCauseFunc) { close(h.done) }, "broker b0 is gone"},
		{"its request ends it", func(_ *rig, _ *handle, _ context.CancelFunc, _ lease, end context.CancelCauseFunc) {
			end(errors.New("the client does not read"))
		}, "the client does not read"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t, nil)
			g.start(t)
			g.until(t, ready)
			h := <-g.attached
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			l := lease{make(chan struct{}), revoked}
			task, life, end, after := g.run(ctx, t, l)
			tt.end(g, h, cancel, l, end)
			err := <-after
			if err == nil || err.Error() != tt.want {
				t.Errorf("after was told %v, want %s", err, tt.want)
			}
			select {
			case <-task.Done():
			default:
				t.Error("after ran before the engine had let go")
			}
			<-life.Done()
			if cause := context.Cause(life); cause == nil || cause.Error() != tt.want {
				t.Errorf("the life's cause is %v, want %s", cause, tt.want)
			}
			if len(after) != 0 {
				t.Error("after ran twice")
			}
		})
	}
}

func TestABrokerIsClosedAfterItsTasksAndAttachedAnew(t *testing.T) {
	g := newRig(t, nil)
	g.start(t)
	g.until(t, ready)
	first := <-g.attached
	link, err := g.Link()
	if err != nil {
		t.Fatal(err)
	}
	_, _, _, after := g.run(context.Background(), t, lease{revoked: make(chan struct{})})
	g.set(func(g *rig) { g.refusing = errs.New(errs.Unavailable, "not back yet") })
	close(first.done)
	if err := <-after; errs.KindOf(err) != errs.Unavailable {
		t.Errorf("the task ended with %v, want unavailable", err)
	}
	g.until(t, func(s *meshv1.WorkerStatus) bool { return !s.Ready })
	if _, err := g.Link(); errs.KindOf(err) != errs.Unavailable {
		t.Errorf("Link = %v, want unavailable", err)
	}
	if _, err := link.Admit("acme", 1, time.Time{}); errs.KindOf(err) != errs.Unavailable {
		t.Errorf("Admit on the old link = %v, want unavailable", err)
	}
	select {
	case <-first.closed:
		t.Error("the broker was closed while a request held the link")
	default:
	}
	link.Release()
	<-first.closed
	g.set(func(g *rig) { g.refusing = nil; g.facts.Broker = "b1" })
	if s := g.until(t, ready); s.Broker != "b1" {
		t.Errorf("attached to %q, want b1", s.Broker)
	}
}

func TestWatchSendsAtOnceOnChangeAndEachSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil)
		stop, began := make(chan struct{}), time.Now()
		var at []time.Duration
		var reasons []string
		err := g.Watch(context.Background(), stop, g.Status, func(s *meshv1.WorkerStatus) error {
			at, reasons = append(at, time.Since(began)), append(reasons, s.Reason)
			switch len(at) {
			case 2:
				go g.publish(nil, "the broker went away")
			case 4:
				close(stop)
			}
			return nil
		})
		if err != nil {
			t.Fatalf("a stopped watch ended with %v", err)
		}
		if d := cmp.Diff([]time.Duration{0, sendEvery, sendEvery, 2 * sendEvery}, at); d != "" {
			t.Errorf("sent at other times (-want +got):\n%s", d)
		}
		if reasons[1] != "not attached yet" || reasons[2] != "the broker went away" {
			t.Errorf("reasons were %q", reasons)
		}
	})
}
