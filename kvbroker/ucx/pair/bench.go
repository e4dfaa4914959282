package pair

import (
	"context"
	"crypto/rand"
	"io"
	mrand "math/rand/v2"
	"slices"
	"time"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/gpu/layout"
	"leasehold.dev/gpu/pool"
	"leasehold.dev/kvbroker/ucx"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/pagesum"
)

// Bench is what [Bench.Run] measures: scattered pages, from a child's pool to this process's.
type Bench struct {
	Pages     uint32
	PageBytes uint64 // a multiple of 32 KiB
	Window    uint32
	Runs      int
	Options
}

// Result is of a Bench, in GB/s of page bytes, from the first offer to the last page's Landed.
type Result struct {
	Transports []string  `json:"transports"`
	PageBytes  uint64    `json:"page_bytes"`
	Pages      uint32    `json:"pages"`
	Window     uint32    `json:"window"`
	Digest     bool      `json:"digest"` // each page was digested within the time
	GBps       []float64 `json:"gbps"`
	Median     float64   `json:"median_gbps"`
}

// Run moves the pages once without counting and then Runs times, and compares every page's digest with the sender's after
// each.
func (b Bench) Run(ctx context.Context) (Result, error) {
	res := Result{Transports: b.Transports, PageBytes: b.PageBytes, Pages: b.Pages, Window: b.Window, Digest: !b.NoDigest}
	l := Layout(b.PageBytes)
	if l.Check() != nil || l.PageBytes() != b.PageBytes {
		return res, errs.New(errs.Invalid, "bench: no layout has pages of %d bytes", b.PageBytes)
	}
	r, err := Start(l, 2*b.Pages, b.Options)
	if err != nil {
		return res, err
	}
	defer r.Close()
	own, err := pool.New(2*b.Pages, b.PageBytes)
	if err != nil {
		return res, err
	}
	defer own.Close()
	poolFile, tagsFile := own.Files()
	mapped, err := pool.Map(poolFile, tagsFile, 2*b.Pages, b.PageBytes)
	if err != nil {
		return res, err
	}
	defer mapped.Close()
	m, err := Mover(mapped, l, b.Options)
	if err != nil {
		return res, err
	}
	defer m.Close()
	if err := Fill(r.Pool); err != nil {
		return res, err
	}
	for run := range b.Runs + 1 {
		took, err := b.move(ctx, r, m, mapped, l)
		if err != nil {
			return res, err
		}
		if run > 0 { // the first connects
			res.GBps = append(res.GBps, float64(uint64(b.Pages)*b.PageBytes)/took.Seconds()/1e9)
		}
	}
	sorted := slices.Sorted(slices.Values(res.GBps))
	res.Median = sorted[len(sorted)/2]
	return res, nil
}

// Fill writes random bytes to every page.
func Fill(p *pool.Pool) error {
	seed := [32]byte{1}
	src := mrand.NewChaCha8(seed)
	for i := range p.Pages() {
		if _, err := io.ReadFull(src, p.Page(i)); err != nil {
			return err
		}
	}
	return nil
}

func scattered(n uint32) []uint32 {
	out := make([]uint32, 0, n)
	for _, i := range mrand.Perm(int(2 * n))[:n] {
		out = append(out, uint32(i))
	}
	return out
}

func (b Bench) move(ctx context.Context, r *Remote, m *ucx.Mover, mapped *pool.Mapping, l layout.Layout) (time.Duration, error) {
	var id ucx.ID
	_, _ = rand.Read(id[:]) // never fails
	from, to := scattered(b.Pages), scattered(b.Pages)
	places, rows := make([]uint32, b.Pages), make([]uint32, b.Pages)
	for i := range places {
		places[i], rows[i] = uint32(i), pagesum.PageTokens
	}
	if err := m.Expect(ucx.Expectation{ID: id, Pages: to, Rows: rows, Window: b.Window}); err != nil {
		return 0, err
	}
	if err := r.Provide(id, m.Address(), b.Window); err != nil {
		return 0, err
	}
	start := time.Now()
	if err := r.Send(id, places, from); err != nil {
		return 0, err
	}
	if err := landed(ctx, m, int(b.Pages)); err != nil {
		return 0, err
	}
	took := time.Since(start)
	for i := range from {
		want, _, err := engine.PageSum(l, r.Pool.Page(from[i]), pagesum.PageTokens, Keys(l))
		if err != nil {
			return 0, err
		}
		if got, _, err := engine.PageSum(l, mapped.Page(to[i]), pagesum.PageTokens, Keys(l)); err != nil || got != want {
			return 0, errs.New(errs.Corrupt, "bench: page %d is %v, was sent as %v (%w)", i, got, want, err)
		}
	}
	if err := r.End(id); err != nil {
		return 0, err
	}
	return took, m.End(id)
}

// landed waits for n pages.
func landed(ctx context.Context, m *ucx.Mover, n int) error {
	for n > 0 {
		events, err := m.Next(ctx)
		if err != nil {
			return err
		}
		for _, e := range events {
			switch e := e.(type) {
			case ucx.Landed:
				n--
			case ucx.Failed:
				return e.Err
			}
		}
	}
	return nil
}
