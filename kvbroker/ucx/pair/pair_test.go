//go:build ucx

package pair

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/gpu/pool"
	"leasehold.dev/kvbroker/ucx"
	"leasehold.dev/protos/pagesum"
)

func TestMain(m *testing.M) {
	Main()
	goleak.VerifyTestMain(m)
}

const (
	small  = 32 << 10
	large  = 45 * small // 1.4 MiB
	window = 16
	wait   = 20 * time.Second // for what must come
)

// ways are the transports that are tested between processes of this host.
var ways = []Options{{Transports: []string{"posix"}}, {Transports: []string{"posix", "cma"}},
	{Transports: []string{"sysv", "cma"}}, {Transports: []string{"tcp"}, PlainTCP: true}}

// rig is a Mover here and one in a child, each with its pool.
type rig struct {
	*testing.T
	size   uint64
	own    *pool.Pool
	mapped *pool.Mapping
	m      *ucx.Mover
	r      *Remote
	fromM  events
	fromR  events
}

func newRig(t *testing.T, size uint64, pages uint32, o Options) *rig {
	return newRigOf(t, size, size, pages, o)
}

// newRigOf has pages of another size in the child.
func newRigOf(t *testing.T, size, remote uint64, pages uint32, o Options) *rig {
	t.Helper()
	g := &rig{T: t, size: size}
	g.r = g.child(remote, pages, o)
	var err error
	if g.own, err = pool.New(pages, size); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.own.Close() })
	poolFile, tagsFile := g.own.Files()
	if g.mapped, err = pool.Map(poolFile, tagsFile, pages, size); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.mapped.Close() })
	g.open(o)
	g.fromR.next = g.r.Next
	return g
}

// open opens the Mover here.
func (g *rig) open(o Options) {
	g.Helper()
	m, err := Mover(g.mapped, Layout(g.size), o)
	if err != nil {
		g.Fatal(err)
	}
	g.Cleanup(func() { m.Close() })
	g.m, g.fromM = m, events{next: m.Next}
}

// stuck waits for the first event here, and says whether it is that.
func (g *rig) stuck() bool {
	g.Helper()
	ctx, stop := context.WithTimeout(g.Context(), wait)
	defer stop()
	for len(g.fromM.have) == 0 {
		var err error
		if g.fromM.have, err = g.fromM.next(ctx); err != nil {
			g.Fatal(err)
		}
	}
	_, stuck := g.fromM.have[0].(ucx.Stuck)
	return stuck
}

func (g *rig) child(size uint64, pages uint32, o Options) *Remote {
	g.Helper()
	r, err := Start(Layout(size), pages, o)
	if err != nil {
		g.Fatal(err)
	}
	g.Cleanup(r.Close)
	if err := Fill(r.Pool); err != nil {
		g.Fatal(err)
	}
	return r
}

// events are one side's, waited for one by one.
type events struct {
	next func(context.Context) ([]ucx.Event, error)
	have []ucx.Event
}

// wait returns the next event of kind E, and drops those before it. Nil: it did not come within d.
func next[E ucx.Event](g *rig, from *events, d time.Duration) *E {
	g.Helper()
	ctx, stop := context.WithTimeout(g.Context(), d)
	defer stop()
	for {
		for len(from.have) > 0 {
			e := from.have[0]
			from.have = from.have[1:]
			if e, ok := e.(E); ok {
				return &e
			}
		}
		var err error
		if from.have, err = from.next(ctx); err != nil {
			return nil
		}
	}
}

// must is next of what has to come.
func must[E ucx.Event](g *rig, from *events) E {
	g.Helper()
	e := next[E](g, from, wait)
	if e == nil {
		g.Fatalf("no %T within %v", *new(E), wait)
	}
	return *e
}

func (g *rig) do(list ...error) {
	g.Helper()
	if err := errors.Join(list...); err != nil {
		g.Fatal(err)
	}
}

func newID() (id ucx.ID) {
	_, _ = rand.Read(id[:])
	return id
}

// plan is a transfer's pages on both sides: scattered, by place.
type plan struct {
	id                  ucx.ID
	places, here, there []uint32
}

func newPlan(n uint32) plan {
	p := plan{id: newID(), here: scattered(n), there: scattered(n)}
	for i := range n {
		p.places = append(p.places, i)
	}
	return p
}

func (p plan) expect(pages []uint32) ucx.Expectation {
	rows := make([]uint32, len(pages))
	for i := range rows {
		rows[i] = pagesum.PageTokens
	}
	return ucx.Expectation{ID: p.id, Pages: pages, Rows: rows, Window: window}
}

// in lets the child send the plan's pages to here.
func (g *rig) in(p plan) {
	g.Helper()
	g.do(g.m.Expect(p.expect(p.here)), g.r.Provide(p.id, g.m.Address(), window), g.r.Send(p.id, p.places, p.there))
}

// out sends them to the child.
func (g *rig) out(p plan) {
	g.Helper()
	g.do(g.r.Expect(p.expect(p.there)), g.m.Provide(p.id, g.r.Address(), window))
	for i, place := range p.places {
		g.do(g.m.Send(p.id, place, p.here[i]))
	}
}

func (g *rig) sum(page []byte) pagesum.Digest {
	g.Helper()
	d, _, err := engine.PageSum(Layout(g.size), page, pagesum.PageTokens, Keys(Layout(g.size)))
	g.do(err)
	return d
}

func TestPagesArriveWhole(t *testing.T) {
	for _, o := range ways {
		for _, tt := range []struct {
			size uint64
			n    uint32
		}{{small, 1}, {small, 500}, {large, 1}, {large, 40}} {
			t.Run(fmt.Sprint(o.Transports, tt.n, " of ", tt.size), func(t *testing.T) {
				g := newRig(t, tt.size, 2*tt.n, o)
				p := newPlan(tt.n)
				g.in(p)
				for range tt.n {
					e := must[ucx.Landed](g, &g.fromM)
					if want := g.sum(g.r.Pool.Page(p.there[e.Place])); e.Digest != want || e.Nonzero != pagesum.PageTokens {
						t.Fatalf("page %d landed as %v with %d rows, want %v", e.Place, e.Digest, e.Nonzero, want)
					}
				}
				for i := range p.here {
					if !bytes.Equal(g.mapped.Page(p.here[i]), g.r.Pool.Page(p.there[i])) {
						t.Errorf("page %d differs", i)
					}
				}
				g.do(g.m.End(p.id), g.r.End(p.id))
				must[ucx.Drained](g, &g.fromM)
				must[ucx.Drained](g, &g.fromR)
				clear(g.r.Pool.Page(0))
				back := newPlan(tt.n) // the other way, over the same pair
				g.out(back)
				for range tt.n {
					e := must[ucx.Landed](g, &g.fromR)
					if want := g.sum(g.mapped.Page(back.here[e.Place])); e.Digest != want {
						t.Fatalf("page %d landed there as %v, want %v", e.Place, e.Digest, want)
					}
				}
			})
		}
	}
}

// marked fills pages of this side, and says afterwards whether any byte has changed.
func (g *rig) marked(pages []uint32) (intact func() bool) {
	pattern := bytes.Repeat([]byte{0xAA}, int(g.size))
	for _, p := range pages {
		copy(g.mapped.Page(p), pattern)
	}
	return func() bool {
		for _, p := range pages {
			if !bytes.Equal(g.mapped.Page(p), pattern) {
				return false
			}
		}
		return true
	}
}

func all(n uint32) (out []uint32) {
	for i := range n {
		out = append(out, i)
	}
	return out
}

func TestWhatIsNotExpectedTouchesNothing(t *testing.T) {
	const n = 4
	for _, tt := range []struct {
		name   string
		remote uint64
		expect bool
		send   func(g *rig, p plan)
		fails  bool
	}{
		{"an unknown transfer", small, false, func(g *rig, p plan) { g.do(g.r.Send(p.id, p.places[:1], p.there[:1])) }, false},
		{"a longer page", 2 * small, true, func(g *rig, p plan) { g.do(g.r.Send(p.id, p.places[:1], p.there[:1])) }, true},
		{"a place out of range", small, true, func(g *rig, p plan) { g.do(g.r.Send(p.id, []uint32{n}, p.there[:1])) }, true},
		{"a place far out of range", small, true, func(g *rig, p plan) { g.do(g.r.Send(p.id, []uint32{1<<32 - 1}, p.there[:1])) }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newRigOf(t, small, tt.remote, 2*n, ways[0])
			p := newPlan(n)
			intact := g.marked(all(2 * n))
			if tt.expect {
				g.do(g.m.Expect(p.expect(p.here)))
			}
			g.do(g.r.Provide(p.id, g.m.Address(), window))
			tt.send(g, p)
			if tt.fails {
				must[ucx.Failed](g, &g.fromM)
			}
			must[ucx.Sent](g, &g.fromR) // it was given back
			if c := g.m.Counts(); c.Unknown+c.Refused != 1 || c.PagesIn != 0 {
				t.Errorf("counts %+v, want one refused", c)
			}
			g.do(g.m.End(p.id))
			must[ucx.Drained](g, &g.fromM)
			if !intact() {
				t.Error("bytes of the pool have changed")
			}
		})
	}
}

func TestARepeatedPlaceTouchesNothing(t *testing.T) {
	g := newRig(t, small, 8, ways[0])
	p := newPlan(4)
	g.do(g.m.Expect(p.expect(p.here)), g.r.Provide(p.id, g.m.Address(), window), g.r.Send(p.id, p.places[:1], p.there[:1]))
	must[ucx.Landed](g, &g.fromM)
	g.do(g.r.End(p.id))
	must[ucx.Drained](g, &g.fromR)
	intact := g.marked(all(8))
	g.do(g.r.Provide(p.id, g.m.Address(), window), g.r.Send(p.id, p.places[:1], p.there[1:2]))
	must[ucx.Failed](g, &g.fromM)
	if !intact() {
		t.Error("bytes of the pool have changed")
	}
}

func TestNothingLandsAfterDrained(t *testing.T) {
	for _, o := range ways {
		t.Run(fmt.Sprint(o.Transports), func(t *testing.T) {
			const n = 64
			g := newRig(t, large, 2*n, o)
			for range 5 {
				p := newPlan(n)
				g.in(p)
				must[ucx.Landed](g, &g.fromM) // and others are under way
				g.do(g.m.End(p.id))
				must[ucx.Drained](g, &g.fromM)
				intact := g.marked(p.here)
				g.do(g.r.End(p.id))
				must[ucx.Drained](g, &g.fromR)
				if !intact() {
					t.Fatal("bytes landed after Drained")
				}
			}
		})
	}
}

// TestAnIdleMoverSleeps: before the first transfer, while one waits for its pages, and after it.
func TestAnIdleMoverSleeps(t *testing.T) {
	const span = 500 * time.Millisecond
	g := newRig(t, small, 8, ways[0])
	busy := func() time.Duration {
		t.Helper()
		var before, after unix.Rusage
		g.do(unix.Getrusage(unix.RUSAGE_SELF, &before))
		time.Sleep(span)
		g.do(unix.Getrusage(unix.RUSAGE_SELF, &after))
		return time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
	}
	look := func(when string) {
		t.Helper()
		if b := busy(); b > span/4 {
			t.Errorf("%s it computes for %v of %v", when, b, span)
		}
	}
	look("before a transfer")
	p := newPlan(4)
	g.do(g.m.Expect(p.expect(p.here)))
	look("while a transfer waits")
	g.do(g.r.Provide(p.id, g.m.Address(), window), g.r.Send(p.id, p.places, p.there))
	for range p.here {
		must[ucx.Landed](g, &g.fromM)
	}
	g.do(g.m.End(p.id), g.r.End(p.id))
	must[ucx.Drained](g, &g.fromM)
	look("after a transfer")
}

// TestAQuietMoverIsNotStuck: a transfer whose sender says nothing for longer than a probe may take is not the Mover's fault.
func TestAQuietMoverIsNotStuck(t *testing.T) {
	for _, o := range ways {
		t.Run(fmt.Sprint(o.Transports), func(t *testing.T) {
			g := newRig(t, small, 8, o)
			p := newPlan(4)
			g.do(g.m.Expect(p.expect(p.here)))
			if next[ucx.Stuck](g, &g.fromM, 7*time.Second) != nil {
				t.Fatal("it says that it is stuck")
			}
			g.do(g.r.Provide(p.id, g.m.Address(), window), g.r.Send(p.id, p.places, p.there))
			for range p.here {
				must[ucx.Landed](g, &g.fromM)
			}
		})
	}
}

func TestAKilledSender(t *testing.T) {
	for _, o := range ways {
		t.Run(fmt.Sprint(o.Transports), func(t *testing.T) {
			const n = 64
			g := newRig(t, large, 2*n, o)
			p := newPlan(n)
			g.in(p)
			must[ucx.Landed](g, &g.fromM)
			g.do(g.r.Kill())
			start := time.Now()
			g.do(g.m.End(p.id))
			must[ucx.Drained](g, &g.fromM)
			t.Logf("drained %v after the kill", time.Since(start).Round(time.Millisecond))
			if intact := g.marked(p.here); !intact() {
				t.Error("bytes landed after Drained")
			}
			g.again(o)
		})
	}
}

// again is a whole transfer each way with a new child: what was lost is not missed. A Mover that the killed one has left stuck
// says so, and a new one takes its place.
func (g *rig) again(o Options) {
	g.Helper()
	g.r = g.child(g.size, g.mapped.Pages(), o)
	g.fromR = events{next: g.r.Next}
	p, q := newPlan(4), newPlan(4)
	g.in(p)
	if g.stuck() {
		g.Log("it was stuck, and said so")
		g.m.Close()
		g.open(o)
		p = newPlan(4)
		g.in(p)
	}
	for range p.here {
		must[ucx.Landed](g, &g.fromM)
	}
	g.out(q)
	for range q.here {
		must[ucx.Landed](g, &g.fromR)
	}
}

func TestAKilledReceiver(t *testing.T) {
	for _, o := range ways {
		t.Run(fmt.Sprint(o.Transports), func(t *testing.T) {
			const n = 64
			g := newRig(t, large, 2*n, o)
			p := newPlan(n)
			g.out(p)
			must[ucx.Sent](g, &g.fromM)
			gone := g.r.Address()
			g.do(g.r.Kill())
			start := time.Now()
			must[ucx.Failed](g, &g.fromM)
			g.do(g.m.End(p.id))
			must[ucx.Drained](g, &g.fromM)
			t.Logf("drained %v after the kill", time.Since(start).Round(time.Millisecond))
			g.again(o)
			late := newPlan(1)
			g.do(g.m.Provide(late.id, gone, window), g.m.Send(late.id, 0, 0)) // to one that is gone
			must[ucx.Failed](g, &g.fromM)
			g.do(g.m.End(late.id))
			must[ucx.Drained](g, &g.fromM)
		})
	}
}

// TestAStoppedSender: the receiver says that it has drained, or it says nothing; if it does, nothing lands afterwards.
func TestAStoppedSender(t *testing.T) {
	for _, o := range ways {
		t.Run(fmt.Sprint(o.Transports), func(t *testing.T) {
			const n = 64
			g := newRig(t, large, 2*n, o)
			p := newPlan(n)
			g.in(p)
			must[ucx.Landed](g, &g.fromM)
			g.do(g.r.Process.Signal(stop))
			g.do(g.m.End(p.id))
			drained := next[ucx.Drained](g, &g.fromM, 300*time.Millisecond) != nil
			t.Logf("drained while the sender is stopped: %v", drained)
			intact := func() bool { return true }
			if drained {
				intact = g.marked(p.here)
			}
			g.do(g.r.Process.Signal(goOn))
			if !drained {
				must[ucx.Drained](g, &g.fromM)
			}
			g.do(g.r.End(p.id))
			must[ucx.Drained](g, &g.fromR)
			if !intact() {
				t.Error("bytes landed after Drained")
			}
		})
	}
}

func TestManyTransfersAtOnce(t *testing.T) {
	const transfers, n = 24, 10
	g := newRig(t, small, 2*transfers*n, ways[0])
	plans := map[ucx.ID]plan{}
	for i := range uint32(transfers) {
		p := plan{id: newID(), places: all(n)}
		for j := range uint32(n) {
			p.here, p.there = append(p.here, i*n+j), append(p.there, i*n+j)
		}
		plans[p.id] = p
		g.in(p)
	}
	landed := 0
	for landed < transfers*n {
		e := must[ucx.Landed](g, &g.fromM)
		if want := g.sum(g.r.Pool.Page(plans[e.ID].there[e.Place])); e.Digest != want {
			t.Fatalf("transfer %v: page %d landed as %v, want %v", e.ID, e.Place, e.Digest, want)
		}
		landed++
	}
	for id := range plans {
		g.do(g.m.End(id), g.r.End(id))
	}
	for range plans {
		must[ucx.Drained](g, &g.fromM)
		must[ucx.Drained](g, &g.fromR)
	}
	if c := g.m.Counts(); c.Transfers != 0 || c.Operations != 0 || c.PagesIn != transfers*n {
		t.Errorf("counts %+v after the end", c)
	}
}

func TestOpenRefuses(t *testing.T) {
	_, err := ucx.Open(ucx.Config{Pool: make([]byte, 100), PageBytes: 64, Transports: []string{"posix"}})
	if err == nil {
		t.Error("a pool of half a page is no error")
	}
	if _, err := Start(Layout(small), 1, Options{Transports: []string{"dc"}}); err == nil {
		t.Error("dc is no error")
	}
	if os.Getenv("UCX_TLS") != "" {
		t.Error("UCX_TLS is in the environment")
	}
}
