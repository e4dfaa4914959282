package lease

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/pagesum"
)

// TestHistories plays random histories against the table and the model, and at the end lets everybody prove.
func TestHistories(t *testing.T) {
	var accepted, refused, ignored int
	rapid.Check(t, func(t *rapid.T) {
		g := &game{t: t}
		cfg := Config{Pages: rapid.Uint32Range(1, 24).Draw(t, "pages"), Quota: rapid.Uint32Range(0, 12).Draw(t, "quota"),
			Share: rapid.Uint32Range(0, 3).Draw(t, "share"), QuarantineCap: rapid.Uint32Range(0, 24).Draw(t, "cap"), Generation: rapid.Uint64().Draw(t, "generation")}
		g.play(cfg, rapid.IntRange(1, 120).Draw(t, "events"))
		g.settle()
		accepted, refused, ignored = accepted+g.accepted, refused+g.refused, ignored+g.ignored
	})
	if accepted < refused/4 || refused == 0 || ignored == 0 {
		t.Errorf("histories of %d accepted, %d refused and %d ignored events are not worth much", accepted, refused, ignored)
	}
}

// TestEqualHistoriesEqualEffects: nothing but the events decides.
func TestEqualHistoriesEqualEffects(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := &game{t: t}
		cfg := Config{Pages: 16, QuarantineCap: 6}
		g.play(cfg, 60)
		again, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, ev := range g.history {
			lines = append(lines, outcome(again.Step(ev)))
		}
		if d := cmp.Diff(g.outcomes, lines); d != "" {
			t.Fatalf("replayed (-first +again):\n%s", d)
		}
	})
}

func outcome(effects []Effect, err error) string {
	if err != nil {
		return err.Error()
	}
	var lines []string
	for _, e := range effects {
		lines = append(lines, describe(e))
	}
	return strings.Join(lines, "; ")
}

// game draws events: mostly ones that could come next, some that could not.
type game struct {
	t                           *rapid.T
	tab                         *Table
	w                           *world
	history                     []Event
	outcomes                    []string
	accepted, refused, ignored  int
	attached                    map[string]uint64
	nextLease, nextWorker, size uint32
	share                       uint32
}

func (g *game) play(cfg Config, events int) {
	var err error
	if g.tab, err = New(cfg); err != nil {
		g.t.Fatal(err)
	}
	g.w, g.size, g.share, g.attached = newWorld(cfg.Pages, cfg.Quota), cfg.Pages, cfg.Share, map[string]uint64{}
	for range events {
		g.step(g.draw())
	}
}

func (g *game) step(ev Event) []Effect {
	before := g.tab.Snapshot()
	effects, err := g.tab.Step(ev)
	g.history, g.outcomes = append(g.history, ev), append(g.outcomes, outcome(effects, err))
	fail := func(err error) {
		g.t.Fatalf("%v\nevent %#v\nhistory:\n%s", err, ev, strings.Join(g.outcomes, "\n"))
	}
	switch {
	case err != nil:
		g.refused++
		if errs.KindOf(err) == errs.Internal {
			fail(fmt.Errorf("an internal error: %w", err))
		}
		if d := cmp.Diff(before, g.tab.Snapshot()); d != "" || effects != nil {
			fail(fmt.Errorf("an error with effects %v, or that changed the table:\n%s", effects, d))
		}
		if err := g.mayRefuse(ev, err); err != nil {
			fail(err)
		}
	case has[Ignored](effects):
		g.ignored++
		if len(effects) > 1 || before.Draining == g.tab.Draining() && cmp.Diff(before, g.tab.Snapshot()) != "" {
			fail(fmt.Errorf("ignored, but not without effect"))
		}
	default:
		g.accepted++
		if r, ok := ev.(Reserve); ok {
			if err := g.fair(r); err != nil {
				fail(err)
			}
		}
		g.w.prove(ev)
		if err := g.w.perform(ev, effects); err != nil {
			fail(err)
		}
	}
	if err := g.tab.selfCheck(); err != nil {
		fail(err)
	}
	if err := g.w.agree(g.tab.Snapshot()); err != nil {
		fail(err)
	}
	return effects
}

// mayRefuse: where there is room, a well-formed Reserve must not be refused.
func (g *game) mayRefuse(ev Event, err error) error {
	r, ok := ev.(Reserve)
	if k := errs.KindOf(err); !ok || k != errs.Exhausted && k != errs.Limit {
		return nil
	}
	take, free, used, others := r.Pages, uint32(0), uint32(0), uint32(0)
	if r.FromSource {
		take -= r.Moved
	}
	for _, h := range g.w.holder {
		if h == "" {
			free++
		} else if m := g.w.leases[name16[ID](h)]; m != nil && m.Tenant == r.Tenant {
			used++
			if m.Admission != r.Admission {
				others++
			}
		}
	}
	if g.share > 0 && others > 0 && take <= free && used+take > g.share*(free-take) {
		return nil
	}
	if take <= free && r.Pages <= g.w.pages && (g.w.quota == 0 || r.Pages <= g.w.quota && used+take <= g.w.quota) && g.tab.Draining() == "" {
		return fmt.Errorf("%w, but %d are free and the tenant has %d", err, free, used)
	}
	return nil
}

// fair: whoever was granted pages beside another request leaves others their part.
func (g *game) fair(r Reserve) error {
	var used, others uint32
	for _, l := range g.tab.Snapshot().Leases {
		if l.Tenant == r.Tenant {
			if used += l.Pages; l.Admission != r.Admission {
				others += l.Pages
			}
		}
	}
	if free := g.tab.Free(); g.share > 0 && others > 0 && used > g.share*free {
		return fmt.Errorf("%s has %d pages, %d are free, the share is %d", r.Tenant, used, free, g.share)
	}
	return nil
}

// settle lets every party prove, clears, and expects the baseline.
func (g *game) settle() {
	for _, a := range slices.Sorted(maps.Keys(g.attached)) {
		g.step(WorkerGone{name16[Attach](a)})
	}
	for _, l := range g.tab.Snapshot().Leases {
		for range l.Movers {
			g.step(PullEnded{l.Lease, false})
		}
		if _, ok := g.tab.Get(l.Lease); ok { // finished, and never read
			g.step(Expire{l.Lease})
		}
	}
	if pages := g.zeroing(); len(pages) > 0 {
		g.step(Zeroed{pages})
	}
	if s := g.tab.Snapshot(); s.States[Free] != g.size || len(s.Leases)+len(s.Tenants)+len(s.Workers) != 0 {
		g.t.Fatalf("not at the baseline: %+v\nhistory:\n%s", s, strings.Join(g.outcomes, "\n"))
	}
}

func (g *game) draw() Event {
	if len(g.attached) == 0 {
		return g.attach()
	}
	switch n := rapid.IntRange(0, 31).Draw(g.t, "what"); {
	case n == 0:
		return g.attach()
	case n == 1 && rapid.IntRange(0, 3).Draw(g.t, "really") == 0:
		a := g.worker()
		delete(g.attached, a)
		return WorkerGone{name16[Attach](a)}
	case n < 8 || len(g.w.leases) == 0:
		return g.reserve()
	case n < 12 && len(g.zeroing()) > 0:
		pages := g.zeroing()
		return Zeroed{pages[:rapid.IntRange(1, len(pages)).Draw(g.t, "cleared")]}
	case n < 26:
		return g.likely()
	case n < 27 && rapid.IntRange(0, 20).Draw(g.t, "really") == 0:
		return Drain{"asked to"}
	default:
		return g.unlikely()
	}
}

func (g *game) zeroing() (pages []uint32) {
	for p, h := range g.w.holder {
		if h == "zeroing" {
			pages = append(pages, uint32(p))
		}
	}
	return pages
}

func (g *game) attach() Event {
	g.nextWorker++
	a := fmt.Sprintf("w%d", g.nextWorker)
	g.attached[a] = uint64(g.nextWorker)
	return Attached{name16[Attach](a), a, g.nextWorker, uint64(g.nextWorker)}
}

func (g *game) worker() string {
	return rapid.SampledFrom(slices.Sorted(maps.Keys(g.attached))).Draw(g.t, "worker")
}

func (g *game) reserve() Event {
	g.nextLease++
	n := fmt.Sprintf("l%d", g.nextLease)
	r := Reserve{Lease: name16[ID](n), Attach: name16[Attach](g.worker()), Admission: name16[Admission](n),
		Role:   rapid.SampledFrom([]Role{Solo, Destination, Source}).Draw(g.t, "role"),
		Tenant: rapid.SampledFrom([]string{"acme", "globex", "initech"}).Draw(g.t, "tenant"),
		Rows:   rapid.Uint32Range(1, min(g.size, 6)*pageTokens).Draw(g.t, "rows")}
	switch r.Pages = pagesFor(r.Rows); r.Role {
	case Destination:
		r.Moved = r.Pages
		r.Pages += rapid.Uint32Range(0, 2).Draw(g.t, "for the answer")
		if r.FromSource = rapid.Bool().Draw(g.t, "from a source here"); r.FromSource {
			break
		}
	case Source:
		for _, l := range g.tab.Snapshot().Leases { // the other half of a handover
			if m := g.w.leases[l.Lease]; m.FromSource && m.Tenant == r.Tenant && rapid.Bool().Draw(g.t, "fits") {
				r.Admission, r.Rows, r.Pages = m.Admission, m.Rows, m.Moved
			}
		}
	}
	return r
}

// likely draws what a lease's own parties do next.
func (g *game) likely() Event {
	l := rapid.SampledFrom(g.tab.Snapshot().Leases).Draw(g.t, "lease")
	m, ref := g.w.leases[l.Lease], Ref{l.Lease, l.Attach, l.Epoch}
	var next []Event
	if l.Working {
		next = append(next, Retired{ref, rapid.Bool().Draw(g.t, "ok"), errs.Corrupt, "told so"})
	}
	if l.Movers > 0 {
		next = append(next, PullEnded{l.Lease, rapid.IntRange(0, 3).Draw(g.t, "ok") > 0})
	}
	switch {
	case l.State.ended():
	case l.Role == Source && l.State == Writing:
		next = append(next, PullStarted{l.Lease}, g.seal(l, m), g.finish(l, m), g.finish(l, m))
	case l.Role == Source:
		for _, to := range g.tab.Snapshot().Leases {
			if to.Role == Destination && to.Admission == l.Admission {
				return Handover{l.Lease, to.Lease}
			}
		}
		next = append(next, PullStarted{l.Lease})
	case l.State == Reserved && l.Movers == 0:
		next = append(next, PullStarted{l.Lease})
	case l.State == Reserved:
		return Arrived{l.Lease, rapid.Uint32Range(0, l.Moved-1).Draw(g.t, "place")}
	case l.State == Staged && l.Movers == 0:
		return Verify{l.Lease}
	case l.State == Verifying:
		next = append(next, Verified{l.Lease}, Verified{l.Lease}, TransferFailed{l.Lease, errs.Corrupt, "differs"})
	default:
		next = append(next, g.seal(l, m))
	}
	if len(next) == 0 {
		return Expire{l.Lease}
	}
	return rapid.SampledFrom(next).Draw(g.t, "next")
}

func (g *game) seal(l Info, m *model) Seal {
	at := l.Rows / pageTokens
	return Seal{Ref{l.Lease, l.Attach, l.Epoch}, []PageSeal{sealOf(at, pageTokens)}}
}

func (g *game) finish(l Info, m *model) Finish {
	f := Finish{Ref: Ref{l.Lease, l.Attach, l.Epoch}, Rows: m.Rows}
	for i := range m.Pages {
		f.Seals = append(f.Seals, sealOf(i, rowsAt(m.Rows, i)))
	}
	return f
}

func sealOf(i, rows uint32) PageSeal { return PageSeal{i, rows, pagesum.Digest{1, byte(i)}} }

// unlikely draws anything about any lease, ended ones and strangers' included.
func (g *game) unlikely() Event {
	n := name16[ID](fmt.Sprintf("l%d", rapid.Uint32Range(0, g.nextLease+1).Draw(g.t, "any lease")))
	ref := Ref{n, name16[Attach](g.worker()), rapid.Uint64Range(0, uint64(g.nextWorker)).Draw(g.t, "any epoch")}
	place := rapid.Uint32Range(0, 7).Draw(g.t, "any place")
	rows := rapid.Uint32Range(0, 130).Draw(g.t, "any rows")
	return rapid.SampledFrom([]Event{Expire{n}, Revoke{n, errs.Unavailable, "deadline"}, Revoke{n, errs.Corrupt, "verdicts differ"},
		Retired{ref, true, errs.Internal, ""}, Retired{ref, false, errs.Unavailable, "told so"}, PullStarted{n}, PullEnded{n, true}, PullEnded{n, false},
		Arrived{n, place}, Verify{n}, Verified{n}, TransferFailed{n, errs.Unavailable, "lost"}, Seal{ref, []PageSeal{sealOf(place, rows)}},
		Finish{ref, []PageSeal{sealOf(place, rows)}, rows}, Handover{n, name16[ID]("l1")}, Zeroed{[]uint32{place}},
		Attached{ref.Attach, "again", 1, 1}, WorkerGone{name16[Attach]("stranger")}, Detached{name16[Attach]("stranger")}, Reserve{Lease: n, Attach: ref.Attach, Role: Solo,
			Tenant: "acme", Admission: name16[Admission](nameOf(n)), Pages: place}}).Draw(g.t, "event")
}
