//go:build cgo

package engine_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/gpu/layout"
	"leasehold.dev/model"
	"leasehold.dev/protos/pagesum"
)

// atRest digests a sequence's pages from memory.
func (b *bench) atRest(s *seq) (ds []pagesum.Digest) {
	b.t.Helper()
	for place := uint32(0); place*64 < s.pos; place++ {
		rows := min(s.pos-place*64, 64)
		d, nonzero, err := engine.PageSum(b.e.Layout(), b.owner.Page(s.pages[place]), rows, b.e.Keys())
		if err != nil || nonzero != rows {
			b.t.Fatalf("PageSum of page %d: %d of %d rows hold something, %v", place, nonzero, rows, err)
		}
		ds = append(ds, d)
	}
	return ds
}

// The rule that makes provenance observable: a sequence's logits and pages do not depend on how it was fed.
func TestSameBits(t *testing.T) {
	const n = 131
	ids := prompt(1, n)
	eachBackend(t, func(t *testing.T, m *model.Model, o engine.Options) {
		b := newBench(t, m, o, 8)
		s := b.open(1, 3)
		want, pages := digests(b.feed(s, ids, n)), b.atRest(s)
		for _, chunk := range []int{1, 7, 63, 64, 65} {
			for _, threads := range []int{1, 3} {
				t.Run(fmt.Sprintf("chunks of %d, %d threads", chunk, threads), func(t *testing.T) {
					o := o
					o.Threads = threads
					b := newBench(t, m, o, 8)
					s := b.open(1, 3)
					if d := cmp.Diff(want, digests(b.feed(s, ids, chunk))); d != "" {
						t.Errorf("logits differ (-whole +chunks):\n%s", d)
					}
					if d := cmp.Diff(pages, b.atRest(s)); d != "" {
						t.Errorf("pages differ (-whole +chunks):\n%s", d)
					}
				})
			}
		}
	})
}

// Alone, or in steps with a prefill, a decode and a sequence that is wrong: no bit changes.
func TestSameBitsAmongOthers(t *testing.T) {
	const n = 70
	ids := prompt(2, n)
	eachBackend(t, func(t *testing.T, m *model.Model, o engine.Options) {
		alone := newBench(t, m, o, 4)
		s := alone.open(1, 2)
		want := digests(alone.feed(s, ids, n))
		pages := alone.atRest(s)

		b := newBench(t, m, o, 16)
		s, long, short, wrong := b.open(1, 2), b.open(2, 6), b.open(3, 2), b.open(4, 1)
		var got []pagesum.Digest
		for i, chunk := 0, 9; len(ids) > 0; i++ {
			chunk = min(chunk, len(ids))
			st := b.step(
				engine.Work{Seq: long.id, Pos: long.pos, Tokens: prompt(uint64(i), 31), Want: engine.None},
				engine.Work{Seq: wrong.id, Pos: 5, Tokens: prompt(3, 2), Want: engine.All},
				engine.Work{Seq: s.id, Pos: s.pos, Tokens: ids[:chunk], Want: engine.All},
				engine.Work{Seq: short.id, Pos: short.pos, Tokens: prompt(4, 1), Want: engine.Last},
			)
			got = append(got, st.Results[2].LogitDigests...)
			long.pos, s.pos, short.pos = st.Results[0].Length, st.Results[2].Length, st.Results[3].Length
			ids = ids[chunk:]
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("logits differ (-alone +among others):\n%s", d)
		}
		if d := cmp.Diff(pages, b.atRest(s)); d != "" {
			t.Errorf("pages differ (-alone +among others):\n%s", d)
		}
	})
}

// What a step says of a page is what the page holds, after every step.
func TestPageDigestsAreThoseAtRest(t *testing.T) {
	eachBackend(t, func(t *testing.T, m *model.Model, o engine.Options) {
		b := newBench(t, m, o, 8)
		s := b.open(1, 4)
		ids := prompt(5, 200)
		for _, n := range []uint32{1, 6, 56, 1, 1, 63, 72} { // lengths 1, 7, 63, 64, 65, 128, 200
			st := b.step(engine.Work{Seq: s.id, Pos: s.pos, Tokens: ids[s.pos : s.pos+n]})
			first := s.pos / 64
			s.pos += n
			rest := b.atRest(s)
			var want []engine.PageDigest
			for place := first; place < uint32(len(rest)); place++ {
				want = append(want, engine.PageDigest{Seq: s.id, Place: place, Rows: min(s.pos-place*64, 64), Digest: rest[place]})
			}
			if d := cmp.Diff(want, st.Pages); d != "" {
				t.Errorf("at length %d (-at rest +step):\n%s", s.pos, d)
			}
		}
	})
}

// A sequence moved to another pool at any row goes on as if it had not been: this is the split.
func TestAMovedSequenceGoesOn(t *testing.T) {
	const n = 135
	ids := prompt(6, n)
	eachBackend(t, func(t *testing.T, m *model.Model, o engine.Options) {
		whole := newBench(t, m, o, 4)
		s := whole.open(1, 3)
		want := digests(whole.feed(s, ids, n))
		pages := whole.atRest(s)
		for _, at := range []int{1, 7, 63, 64, 65, 127, 128, 134} {
			from, to := newBench(t, m, o, 4), newBench(t, m, o, 6)
			p := from.open(1, 3)
			from.feed(p, ids[:at], n)
			sums := from.atRest(p)
			d := &seq{pos: uint32(at)}
			d.pages, d.tags = to.grant(9, 3)
			for i := range sums {
				copy(to.owner.Page(d.pages[i]), from.owner.Page(p.pages[i]))
			}
			var start *pagesum.Digest
			if at%64 != 0 {
				start = &sums[len(sums)-1]
			}
			var err error
			if d.id, err = to.p.OpenSeq(uint32(at), d.pages, d.tags, start); err != nil {
				t.Fatalf("OpenSeq(%d): %v", at, err)
			}
			st := to.step(engine.Work{Seq: d.id, Pos: uint32(at), Tokens: ids[at:], Want: engine.All})
			d.pos = n
			if diff := cmp.Diff(want[at:], st.Results[0].LogitDigests); diff != "" {
				t.Errorf("moved at %d: logits differ:\n%s", at, diff)
			}
			if got := to.atRest(d); !cmp.Equal(pages, got) || st.Pages[len(st.Pages)-1].Digest != pages[2] {
				t.Errorf("moved at %d: pages %v (the step says %v), want %v", at, got, st.Pages, pages)
			}
		}
	})
}

// Both SIMD paths are one numerics class.
func TestSIMDPathsAgree(t *testing.T) {
	ids := prompt(8, 131)
	var want []pagesum.Digest
	eachBackend(t, func(t *testing.T, m *model.Model, o engine.Options) {
		if o.Backend != layout.CPU {
			return
		}
		b := newBench(t, m, o, 4)
		got := digests(b.feed(b.open(1, 3), ids, 50))
		if want == nil {
			want = got
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("logits differ between paths:\n%s", d)
		}
	})
}

func TestLogitDigestIsTheDefinition(t *testing.T) {
	eachBackend(t, func(t *testing.T, m *model.Model, o engine.Options) {
		b := newBench(t, m, o, 4)
		for _, r := range b.feed(b.open(1, 1), prompt(9, 3), 3) {
			if want := pagesum.Logits(r.logits); r.digest != want {
				t.Errorf("digest %v, package pagesum says %v", r.digest, want)
			}
		}
	})
}

func TestWantedRows(t *testing.T) {
	eachBackend(t, func(t *testing.T, m *model.Model, o engine.Options) {
		b := newBench(t, m, o, 4)
		x, y, z := b.open(1, 1), b.open(2, 1), b.open(3, 1)
		ids := prompt(10, 5)
		work := func(s *seq, w engine.Want) engine.Work { return engine.Work{Seq: s.id, Tokens: ids, Want: w} }
		st := b.step(work(x, engine.None), work(y, engine.Last), work(z, engine.All))
		for i, want := range []int{0, 1, 5} {
			r := st.Results[i]
			if len(r.Logits) != want || len(r.LogitDigests) != want || r.Length != 5 || r.Bad {
				t.Errorf("work %d: %d rows, %d digests, length %d, bad %v; want %d rows", i, len(r.Logits), len(r.LogitDigests), r.Length, r.Bad, want)
			}
		}
		if st.Results[1].LogitDigests[0] != st.Results[2].LogitDigests[4] {
			t.Error("the last row differs from the last of all rows")
		}
	})
}
