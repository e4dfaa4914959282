package bar

import (
	"context"
	"fmt"
	"time"

	"leasehold.dev/gpu/layout"
	"leasehold.dev/gpu/pool"
	"leasehold.dev/kvbroker/lease"
)

const (
	leasePool   = 1_000_000 // pages
	leaseLaps   = 21
	leaseAtMost = 1000.0 // ns a page, for each of reserve and release
	// leaseGrowth is how much dearer a page may be in a pool of 10^6 pages than in one of 10^4: the table costs what is asked for,
	// but a larger one is less often in the cache.
	leaseGrowth = 4.0
)

// runBenchLease times the table's two steps around a lease, and the clearing of its pages.
func runBenchLease(ctx context.Context, e *Env) (Result, error) {
	r := Result{Met: true, Figures: map[string]any{"pool": leasePool}}
	small := map[uint32]leaseCost{}
	for _, c := range []struct{ pool, asked uint32 }{{10_000, 1}, {10_000, 64}, {10_000, 10_000}, {leasePool, 1}, {leasePool, 64}, {leasePool, 10_000}, {leasePool, leasePool}} {
		if err := ctx.Err(); err != nil {
			return r, err
		}
		cost, err := timeLease(c.pool, c.asked)
		if err != nil {
			return r, err
		}
		e.sayf("bench-lease: %7d of %7d pages: reserve %7.0f, release %7.0f ns a page", c.asked, c.pool, cost.reserve, cost.release)
		if c.pool != leasePool {
			small[c.asked] = cost
			continue
		}
		r.Figures[fmt.Sprintf("reserve_%d_ns_page", c.asked)], r.Figures[fmt.Sprintf("release_%d_ns_page", c.asked)] = cost.reserve, cost.release
		if c.asked >= 64 { // a single page carries the whole cost of its lease
			r.Met = r.Met && cost.reserve < leaseAtMost && cost.release < leaseAtMost
		}
		if s, ok := small[c.asked]; ok {
			r.Met = r.Met && cost.reserve < leaseGrowth*s.reserve && cost.release < leaseGrowth*s.release
		}
	}
	l, _, _, err := layout.FromFile(e.Model, layout.CPU)
	if err != nil {
		return r, err
	}
	zero, err := timeZero(l.PageBytes())
	if err != nil {
		return r, err
	}
	r.Figures["page_bytes"], r.Figures["zero_ns_page"], r.Figures["zero_gb_s"] = l.PageBytes(), zero, float64(l.PageBytes())/zero
	return r, nil
}

// leaseCost is in ns a page. Release is the worker's proof and the report that the pages are clear.
type leaseCost struct{ reserve, release float64 }

func timeLease(pages, asked uint32) (leaseCost, error) {
	t, err := lease.New(lease.Config{Pages: pages})
	if err != nil {
		return leaseCost{}, err
	}
	a := lease.Attach{1}
	if _, err := t.Step(lease.Attached{Attach: a, Worker: "w", Epoch: 1}); err != nil {
		return leaseCost{}, err
	}
	inner := max(1, 10_000/int(asked)) // leases a lap
	var reserve, release []float64
	for lap := range leaseLaps {
		var took [2]time.Duration
		for i := range inner {
			id := [16]byte{1, byte(lap), byte(i), byte(i >> 8)}
			start := time.Now()
			if _, err := t.Step(lease.Reserve{Lease: id, Admission: id, Attach: a, Role: lease.Solo, Tenant: "acme", Pages: asked}); err != nil {
				return leaseCost{}, err
			}
			mid := time.Now()
			effects, err := t.Step(lease.Retired{Ref: lease.Ref{Lease: id, Attach: a, Epoch: 1}, OK: true})
			if err != nil {
				return leaseCost{}, err
			}
			for _, e := range effects {
				if z, ok := e.(lease.Zero); ok {
					if _, err := t.Step(lease.Zeroed{Pages: z.Pages}); err != nil {
						return leaseCost{}, err
					}
				}
			}
			took[0], took[1] = took[0]+mid.Sub(start), took[1]+time.Since(mid)
		}
		if t.Free() != pages {
			return leaseCost{}, fmt.Errorf("%d of %d pages are free after a lap", t.Free(), pages)
		}
		n := float64(inner) * float64(asked)
		reserve, release = append(reserve, float64(took[0].Nanoseconds())/n), append(release, float64(took[1].Nanoseconds())/n)
	}
	return leaseCost{median(reserve), median(release)}, nil
}

// timeZero clears pages of a pool that has been written, larger than the caches.
func timeZero(pageBytes uint64) (float64, error) {
	pages := uint32(max(64, (256<<20)/pageBytes))
	p, err := pool.New(pages, pageBytes)
	if err != nil {
		return 0, err
	}
	defer p.Close()
	var laps []float64
	for range 5 {
		for i := range pages {
			b := p.Page(i)
			for k := range b {
				b[k] = 0xa5
			}
		}
		start := time.Now()
		for i := range pages {
			p.Zero(i)
		}
		laps = append(laps, float64(time.Since(start).Nanoseconds())/float64(pages))
	}
	return median(laps), nil
}
