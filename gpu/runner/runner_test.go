package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"leasehold.dev/gpu/batch"
	"leasehold.dev/gpu/engine"
	"leasehold.dev/gpu/layout"
	"leasehold.dev/gpu/pool"
	"leasehold.dev/protos/errs"
)

func TestASequenceAmongOthersEqualsItsRunAlone(t *testing.T) {
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			lengths := []int{1, 7, 63, 64, 65, 130}
			alone := make([]*greedy, len(lengths))
			one := newRig(t, backend, batch.Limits{StepTokens: 65, Chunk: 64, Sequences: 1, QueueRequests: 1, QueueTokens: 1 << 20, TenantRequests: 1})
			for i, n := range lengths {
				alone[i] = &greedy{n: 5}
				one.next = 0
				if err := wait(t, one.start(t, "a", prompt(n, i), alone[i])); err != nil {
					t.Fatal(err)
				}
			}
			all := newRig(t, backend, batch.Limits{StepTokens: 48, Chunk: 19, Sequences: 8, QueueRequests: 32, QueueTokens: 1 << 20, TenantRequests: 32})
			among := make([]*greedy, len(lengths))
			tasks := make([]*Task, len(lengths))
			for i, n := range lengths {
				among[i] = &greedy{n: 5}
				tasks[i] = all.start(t, fmt.Sprint("t", i%3), prompt(n, i), among[i])
			}
			for i, n := range lengths {
				if err := wait(t, tasks[i]); err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(alone[i].ids, among[i].ids); d != "" {
					t.Errorf("prompt of %d: tokens differ (-alone +among others):\n%s", n, d)
				}
				if d := cmp.Diff(alone[i].digests, among[i].digests); d != "" {
					t.Errorf("prompt of %d: logits differ:\n%s", n, d)
				}
				for place, sum := range alone[i].sums {
					if got := among[i].sums[place]; got.Digest != sum.Digest || got.Rows != sum.Rows {
						t.Errorf("prompt of %d: page %d has digest %v of %d rows, alone %v of %d", n, place, got.Digest, got.Rows, sum.Digest, sum.Rows)
					}
				}
				if want := append(prompt(n, i), among[i].ids[:4]...); !slices.Equal(among[i].fed, want) {
					t.Errorf("prompt of %d: ids %v were fed, want %v", n, among[i].fed, want)
				}
				if got := tasks[i].Length(); got != uint32(n+4) { // the last token is never appended
					t.Errorf("prompt of %d: %d rows, want %d", n, got, n+4)
				}
			}
		})
	}
}

func TestAPrefillEndsWithoutLogits(t *testing.T) {
	g := newRig(t, layout.Ref, roomy)
	h := &greedy{}
	task, err := g.Admit(g.pool, Request{Tenant: "a", Tokens: 130})
	if err != nil {
		t.Fatal(err)
	}
	pages, tags := g.pages(3)
	if err := task.Start(Sequence{Pages: pages, Tags: tags, Tokens: prompt(130, 1), Handler: h}); err != nil {
		t.Fatal(err)
	}
	if err := wait(t, task); err != nil || task.Length() != 130 || len(h.ids) != 0 {
		t.Fatalf("ended with %v, %d rows, %d tokens, want 130 rows", err, task.Length(), len(h.ids))
	}
	for place, rows := range []uint32{64, 64, 2} {
		if d := h.sums[uint32(place)]; d.Rows != rows || d.Digest.IsZero() {
			t.Errorf("page %d: %d rows with digest %v, want %d", place, d.Rows, d.Digest, rows)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	total := 0
	for _, s := range g.stats {
		total += s.Prompt
		if s.Decode != 0 || s.Took <= 0 {
			t.Errorf("step %+v of a prefill", s)
		}
	}
	if total != 130 {
		t.Errorf("steps had %d prompt tokens, want 130", total)
	}
}

// What goes wrong with one sequence, who hears of it, and that its neighbour does not.
func TestOneSequenceFailsAndItsNeighbourDoesNot(t *testing.T) {
	want := &greedy{n: 40}
	{
		g := newRig(t, layout.Ref, roomy)
		if err := wait(t, g.start(t, "b", prompt(20, 2), want)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name string
		harm func(g *rig, victim *Task, page uint32)
		kind errs.Kind
		text string
	}{
		{"its page goes to somebody else", func(g *rig, _ *Task, page uint32) {
			g.owner.StoreTag(page, pool.MakeTag(2, generation+1))
		}, errs.Corrupt, "tag check"},
		{"its page goes to nobody", func(g *rig, _ *Task, page uint32) {
			g.owner.StoreTag(page, pool.MakeTag(pool.Nobody, generation+1))
		}, errs.Corrupt, "tag check"},
		{"its page is sealed under it", func(g *rig, _ *Task, page uint32) {
			g.owner.StoreTag(page, pool.MakeTag(1, generation).WithSealed(true))
		}, errs.Corrupt, "tag check"},
		{"its page fills with NaN", func(g *rig, _ *Task, page uint32) {
			for i := range g.owner.Page(page) {
				g.owner.Page(page)[i] = 0xff
			}
		}, errs.Corrupt, "not finite"},
		{"it is cancelled", func(_ *rig, victim *Task, _ uint32) {
			victim.Cancel(context.Canceled)
		}, errs.Unavailable, "canceled"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t, layout.Ref, roomy)
			running := make(chan struct{})
			victimPage := g.next
			victim := g.start(t, "a", prompt(20, 1), &greedy{n: 400, stepped: running})
			<-running
			neighbour := &greedy{n: 40}
			other := g.start(t, "b", prompt(20, 2), neighbour)
			tt.harm(g, victim, victimPage)
			err := wait(t, victim)
			if err == nil || errs.KindOf(err) != tt.kind || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("the victim ended with %v, want %v: ...%s...", err, tt.kind, tt.text)
			}
			if tagged := tt.text == "tag check"; tagged != (len(victim.Faults()) > 0) {
				t.Errorf("the victim has %d fault records", len(victim.Faults()))
			}
			if err := wait(t, other); err != nil {
				t.Errorf("the neighbour ended with %v", err)
			}
			if d := cmp.Diff(want.ids, neighbour.ids); d != "" {
				t.Errorf("the neighbour's tokens differ (-alone +beside):\n%s", d)
			}
			if l := g.Load(); l != (batch.Load{}) {
				t.Errorf("load is %+v, want none", l)
			}
		})
	}
}

type refusing struct{}

func (refusing) Step(Outcome) (int32, bool, error) {
	return 0, true, errs.New(errs.Corrupt, "the handler says no")
}

func TestAHandlersErrorEndsTheTask(t *testing.T) {
	g := newRig(t, layout.Ref, roomy)
	task, err := g.Admit(g.pool, Request{Tenant: "a", Tokens: 3})
	if err != nil {
		t.Fatal(err)
	}
	pages, tags := g.pages(1)
	if err := task.Start(Sequence{Pages: pages, Tags: tags, Tokens: prompt(3, 0), Handler: refusing{}}); err != nil {
		t.Fatal(err)
	}
	if err := wait(t, task); err == nil || err.Error() != "the handler says no" {
		t.Errorf("ended with %v", err)
	}
}

func TestASequenceThatCannotBeOpenedEndsAlone(t *testing.T) {
	g := newRig(t, layout.Ref, roomy)
	task, err := g.Admit(g.pool, Request{Tenant: "a", Tokens: 3})
	if err != nil {
		t.Fatal(err)
	}
	if err := task.Start(Sequence{Pages: []uint32{9999}, Tags: []pool.Tag{1}, Tokens: prompt(3, 0), Handler: &greedy{}}); err != nil {
		t.Fatal(err)
	}
	if err := wait(t, task); err == nil {
		t.Error("a sequence on a page outside the pool ended well")
	}
	if err := wait(t, g.start(t, "a", prompt(3, 0), &greedy{n: 1})); err != nil {
		t.Errorf("the next one ended with %v", err)
	}
}

func TestCancelledLongPromptsDoNotDelayAShortOne(t *testing.T) {
	g := newRig(t, layout.Ref, roomy)
	var dead []*Task
	for i := range 12 {
		task, err := g.Admit(g.pool, Request{Tenant: "a", Tokens: 128})
		if err != nil {
			t.Fatal(err)
		}
		pages, tags := g.pages(2)
		if err := task.Start(Sequence{Pages: pages, Tags: tags, Tokens: prompt(128, i), Handler: &greedy{}}); err != nil {
			t.Fatal(err)
		}
		dead = append(dead, task)
	}
	for _, task := range dead {
		task.Cancel(context.Canceled)
	}
	g.mu.Lock()
	before := len(g.stats)
	g.mu.Unlock()
	if err := wait(t, g.start(t, "a", prompt(5, 9), &greedy{n: 1})); err != nil {
		t.Fatal(err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := len(g.stats) - before; n > 2 { // the step that may have been running, and its own
		t.Errorf("the short prompt waited for %d steps", n-1)
	}
}

func TestADeadlineEndsTheTask(t *testing.T) {
	g := newRig(t, layout.Ref, roomy)
	task, err := g.Admit(g.pool, Request{Tenant: "a", Tokens: 3, Deadline: time.Now().Add(-time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	if err := wait(t, task); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ended with %v, want its deadline", err)
	}
	if err := task.Start(Sequence{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Start after the end = %v", err)
	}
}

func TestDetachEndsEveryTaskOfThatPoolAndNoOther(t *testing.T) {
	g := newRig(t, layout.Ref, roomy)
	first := g.pool
	running := make(chan struct{})
	runs := g.start(t, "a", prompt(20, 1), &greedy{n: 300, stepped: running})
	held, err := g.Admit(g.pool, Request{Tenant: "a", Tokens: 9})
	if err != nil {
		t.Fatal(err)
	}
	<-running
	g.owner, g.pool = g.attach(t)
	g.next = 0
	stays := g.start(t, "b", prompt(20, 2), &greedy{n: 20})
	why := errs.New(errs.Unavailable, "broker b0 is gone")
	if err := g.Detach(first, why); err != nil {
		t.Fatal(err)
	}
	for _, task := range []*Task{runs, held} {
		select {
		case <-task.Done():
		default:
			t.Error("a task is not done when Detach has returned")
			continue
		}
		if !errors.Is(task.Err(), why) {
			t.Errorf("ended with %v, want %v", task.Err(), why)
		}
	}
	if _, err := g.Admit(first, Request{Tenant: "a", Tokens: 1}); !errors.Is(err, why) {
		t.Errorf("Admit on a detached pool = %v, want %v", err, why)
	}
	if err := wait(t, stays); err != nil {
		t.Errorf("a task on the other pool ended with %v", err)
	}
}

func TestAStoppedLoopRefusesAndLetsGo(t *testing.T) {
	g := newRig(t, layout.Ref, roomy)
	ctx, cancel := context.WithCancel(context.Background())
	r, err := New(g.engine, Options{Limits: roomy})
	if err != nil {
		t.Fatal(err)
	}
	p := &Pool{h: g.pool.h}
	task, err := r.Admit(p, Request{Tenant: "a", Tokens: 1})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	r.Run(ctx)
	if err := wait(t, task); errs.KindOf(err) != errs.Unavailable {
		t.Errorf("a task of a stopped loop ended with %v", err)
	}
	if _, err := r.Admit(p, Request{Tenant: "a", Tokens: 1}); errs.KindOf(err) != errs.Unavailable {
		t.Errorf("Admit = %v, want unavailable", err)
	}
	if _, err := r.Attach(nil); errs.KindOf(err) != errs.Unavailable {
		t.Errorf("Attach = %v, want unavailable", err)
	}
	if r.Healthy() == nil {
		t.Error("a stopped loop is healthy")
	}
}

func TestAFullQueueIsExhausted(t *testing.T) {
	lim := roomy
	lim.QueueRequests = 1
	g := newRig(t, layout.Ref, lim)
	if _, err := g.Admit(g.pool, Request{Tenant: "a", Tokens: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Admit(g.pool, Request{Tenant: "b", Tokens: 1}); errs.KindOf(err) != errs.Exhausted {
		t.Errorf("Admit = %v, want exhausted", err)
	}
}

// backends are those that this machine can run.
func backends() []string {
	if len(engine.SIMDs()) == 0 {
		return []string{layout.Ref}
	}
	return []string{layout.Ref, layout.CPU}
}
