package runner

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"leasehold.dev/gpu/batch"
	"leasehold.dev/gpu/engine"
	"leasehold.dev/gpu/layout"
	"leasehold.dev/gpu/pool"
	"leasehold.dev/gpu/tinymodel"
	"leasehold.dev/protos/pagesum"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a real engine, a real pool and a running loop. The test is the pool's owner.
type rig struct {
	*Runner
	engine *engine.Engine
	owner  *pool.Pool
	pool   *Pool
	next   uint32 // first page not handed out

	mu    sync.Mutex
	stats []Stats
}

const generation = 77

func newRig(t *testing.T, backend string, lim batch.Limits) *rig {
	t.Helper()
	m := tinymodel.Load(t, tinymodel.Options{})
	e, err := engine.Open(m, engine.Options{Backend: backend, Threads: 1, MaxTokens: lim.StepTokens, MaxSeqs: lim.Sequences})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	g := &rig{engine: e}
	if g.Runner, err = New(e, Options{Limits: lim, Observe: g.observe}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go g.Run(ctx)
	t.Cleanup(func() { cancel(); <-g.done })
	g.owner, g.pool = g.attach(t)
	return g
}

func (g *rig) observe(s Stats) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s.Faults = slices.Clone(s.Faults)
	g.stats = append(g.stats, s)
}

func (g *rig) attach(t *testing.T) (*pool.Pool, *Pool) {
	t.Helper()
	const pages = 32
	owner, err := pool.New(pages, g.engine.Layout().PageBytes())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = owner.Close() })
	mem, tags := owner.Files()
	mapping, err := pool.Map(mem, tags, pages, owner.PageBytes())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mapping.Close() })
	p, err := g.Attach(mapping)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Detach(p, context.Canceled) })
	return owner, p
}

// pages hands out n tagged pages.
func (g *rig) pages(n uint32) (pages []uint32, tags []pool.Tag) {
	for range n {
		tag := pool.MakeTag(1, generation)
		g.owner.StoreTag(g.next, tag)
		pages, tags = append(pages, g.next), append(tags, tag)
		g.next++
	}
	return pages, tags
}

// greedy answers with the greatest logit, n times, and remembers what it saw.
type greedy struct {
	n       int
	ids     []int32
	digests []pagesum.Digest
	fed     []int32
	sums    map[uint32]engine.PageDigest
	stepped chan struct{} // closed at the first step
}

func (h *greedy) Step(o Outcome) (int32, bool, error) {
	if h.stepped != nil {
		close(h.stepped)
		h.stepped = nil
	}
	h.fed = append(h.fed, o.Fed...)
	if h.sums == nil {
		h.sums = map[uint32]engine.PageDigest{}
	}
	for _, d := range o.Pages {
		h.sums[d.Place] = d
	}
	if !o.Last || o.Logits == nil {
		return 0, false, nil
	}
	best := 0
	for i, v := range o.Logits {
		if v > o.Logits[best] {
			best = i
		}
	}
	h.ids = append(h.ids, int32(best))
	h.digests = append(h.digests, o.LogitDigest)
	return int32(best), len(h.ids) < h.n, nil
}

// prompt is n ids that differ by salt.
func prompt(n, salt int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32((i*i*7 + i*31 + salt*1009) % 40000)
	}
	return ids
}

func (g *rig) start(t *testing.T, tenant string, ids []int32, h *greedy) *Task {
	t.Helper()
	task, err := g.Admit(g.pool, Request{Tenant: tenant, Tokens: uint32(len(ids))})
	if err != nil {
		t.Fatal(err)
	}
	pages, tags := g.pages(uint32(len(ids)+h.n-1+layout.PageTokens-1) / layout.PageTokens)
	if err := task.Start(Sequence{Pages: pages, Tags: tags, Tokens: ids, Logits: h.n > 0, Handler: h}); err != nil {
		t.Fatal(err)
	}
	return task
}

func wait(t *testing.T, task *Task) error {
	t.Helper()
	select {
	case <-task.Done():
		return task.Err()
	case <-time.After(time.Minute):
		t.Fatal("the task has not ended")
		return nil
	}
}

var roomy = batch.Limits{StepTokens: 80, Chunk: 64, Sequences: 8, QueueRequests: 32, QueueTokens: 1 << 20, TenantRequests: 32}
