//go:build cgo

package engine_test

import (
	"testing"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/gpu/pool"
	"leasehold.dev/model"
	"leasehold.dev/protos/pagesum"
)

// bench is an engine and a pool that the test owns: it may do to pages and tags what no worker could.
type bench struct {
	t     testing.TB
	e     *engine.Engine
	owner *pool.Pool
	mem   *pool.Mapping
	p     *engine.Pool
	next  uint32 // page to grant next
}

func newBench(t testing.TB, m *model.Model, o engine.Options, pages uint32) *bench {
	t.Helper()
	b := &bench{t: t}
	var err error
	if b.e, err = engine.Open(m, o); err != nil {
		t.Fatalf("Open(%+v): %v", o, err)
	}
	t.Cleanup(b.e.Close)
	if b.owner, err = pool.New(pages, b.e.Layout().PageBytes()); err != nil {
		t.Fatalf("pool.New(%d): %v", pages, err)
	}
	poolFile, tagsFile := b.owner.Files()
	if b.mem, err = pool.Map(poolFile, tagsFile, pages, b.e.Layout().PageBytes()); err != nil {
		t.Fatalf("pool.Map: %v", err)
	}
	if b.p, err = b.e.Attach(b.mem); err != nil {
		t.Fatalf("Attach: %v", err)
	}
	t.Cleanup(func() {
		b.p.Close()
		b.mem.Close()
		b.owner.Close()
	})
	return b
}

// seq is an open sequence and the pages that it was granted.
type seq struct {
	id    engine.SeqID
	pages []uint32
	tags  []pool.Tag
	pos   uint32
}

// grant tags n pages for a slot, in an order that is not the pool's.
func (b *bench) grant(slot, n uint32) (pages []uint32, tags []pool.Tag) {
	b.t.Helper()
	if b.next+n > b.owner.Pages() {
		b.t.Fatalf("the test's pool of %d pages is too small", b.owner.Pages())
	}
	for i := range n {
		page := b.next + n - 1 - i
		tag := pool.MakeTag(slot, uint64(1000+page))
		b.owner.StoreTag(page, tag)
		pages, tags = append(pages, page), append(tags, tag)
	}
	b.next += n
	return pages, tags
}

func (b *bench) open(slot, pages uint32) *seq {
	b.t.Helper()
	s := &seq{}
	s.pages, s.tags = b.grant(slot, pages)
	var err error
	if s.id, err = b.p.OpenSeq(0, s.pages, s.tags, nil); err != nil {
		b.t.Fatalf("OpenSeq(0 rows, %d pages): %v", pages, err)
	}
	return s
}

func (b *bench) step(work ...engine.Work) *engine.Step {
	b.t.Helper()
	st, err := b.e.Step(work)
	if err != nil {
		b.t.Fatalf("Step: %v", err)
	}
	return st
}

// feed runs tokens through s in chunks and returns copies of what the steps said of each row.
func (b *bench) feed(s *seq, tokens []int32, chunk int) (rows []row) {
	b.t.Helper()
	for len(tokens) > 0 {
		n := min(chunk, len(tokens))
		st := b.step(engine.Work{Seq: s.id, Pos: s.pos, Tokens: tokens[:n], Want: engine.All})
		if len(st.Faults) > 0 || st.Results[0].Bad {
			b.t.Fatalf("step at %d: faults %v, bad %v", s.pos, st.Faults, st.Results[0].Bad)
		}
		rows = append(rows, copyRows(st.Results[0])...)
		s.pos += uint32(n)
		tokens = tokens[n:]
	}
	return rows
}

// row is one row of logits.
type row struct {
	logits []float32
	digest pagesum.Digest
}

func copyRows(r engine.Result) (rows []row) {
	for i := range r.Logits {
		rows = append(rows, row{append([]float32(nil), r.Logits[i]...), r.LogitDigests[i]})
	}
	return rows
}

func digests(rows []row) (ds []pagesum.Digest) {
	for _, r := range rows {
		ds = append(ds, r.digest)
	}
	return ds
}

func argmax(x []float32) (best int32) {
	for i := range x {
		if x[i] > x[best] {
			best = int32(i)
		}
	}
	return best
}
