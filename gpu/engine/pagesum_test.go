package engine_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/gpu/layout"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/pagesum"
)

func fill(page []byte, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 3))
	for i := range page {
		page[i] = byte(rng.Uint32())
	}
}

// byRows is the definition: package pagesum over rows that Layout.Row gathers.
func byRows(l layout.Layout, page []byte, rows uint32, k *pagesum.Keys) pagesum.Digest {
	s, sum, row := l.Shape(), k.New(), make([]byte, l.Shape().RowBytes())
	for t := range int(rows) {
		for layer := range s.Layers {
			for kv := range 2 {
				for head := range s.KVHeads {
					l.Row(row, page, t, layer, kv, head)
					sum.Add(s.Row(t, layer, kv, head), row)
				}
			}
		}
	}
	return sum.Digest()
}

func testKeys(l layout.Layout) *pagesum.Keys {
	h := l.Hash()
	return pagesum.Expand(h[:], make([]byte, 32), l.Shape())
}

func TestPageSumIsTheDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := layout.Layout{
			Layers: rapid.Uint32Range(1, 3).Draw(t, "layers"), KVHeads: rapid.Uint32Range(1, 3).Draw(t, "kv heads"),
			HeadDim: 4 * rapid.Uint32Range(1, 32).Draw(t, "head_dim/4"),
			DType:   rapid.SampledFrom([]layout.DType{layout.BF16, layout.F32}).Draw(t, "dtype"),
		}
		if l.DType == layout.BF16 {
			l.Order = rapid.SampledFrom([]layout.Order{layout.Plain, layout.Pair}).Draw(t, "order")
		}
		rows := rapid.OneOf(rapid.SampledFrom([]uint32{1, 7, 63, 64}), rapid.Uint32Range(1, 64)).Draw(t, "rows")
		page, k := make([]byte, l.PageBytes()), testKeys(l)
		fill(page, rapid.Uint64().Draw(t, "seed"))
		d, nonzero, err := engine.PageSum(l, page, rows, k)
		if want := byRows(l, page, rows, k); err != nil || d != want || nonzero != rows {
			t.Fatalf("PageSum(%+v, %d rows) = %v, %d, %v, want %v, %d", l, rows, d, nonzero, err, want, rows)
		}
	})
}

// The size that is served, in each order: where fast paths are.
func TestPageSumOfTheServedShape(t *testing.T) {
	for _, order := range []layout.Order{layout.Plain, layout.Pair} {
		l := layout.Layout{Layers: 30, KVHeads: 3, HeadDim: 64, Order: order}
		page, k := make([]byte, l.PageBytes()), testKeys(l)
		fill(page, 1)
		for _, rows := range []uint32{1, 7, 63, 64} {
			d, _, err := engine.PageSum(l, page, rows, k)
			if want := byRows(l, page, rows, k); err != nil || d != want {
				t.Errorf("%v order, %d rows: PageSum = %v, %v, want %v", order, rows, d, err, want)
			}
		}
	}
}

// Two orders of the same rows have the same digest, under the same keys.
func TestPageSumDoesNotDependOnTheOrder(t *testing.T) {
	plain := layout.Layout{Layers: 2, KVHeads: 3, HeadDim: 64}
	pair := plain
	pair.Order = layout.Pair
	a, b, row := make([]byte, plain.PageBytes()), make([]byte, pair.PageBytes()), make([]byte, plain.Shape().RowBytes())
	fill(a, 5)
	for tok := range layout.PageTokens {
		for i := range 2 * 2 * 3 {
			plain.Row(row, a, tok, i/6, i/3%2, i%3)
			pair.SetRow(b, row, tok, i/6, i/3%2, i%3)
		}
	}
	k := testKeys(plain)
	x, _, errX := engine.PageSum(plain, a, 64, k)
	y, _, errY := engine.PageSum(pair, b, 64, k)
	if x != y || errX != nil || errY != nil {
		t.Errorf("plain %v (%v), pair %v (%v)", x, errX, y, errY)
	}
}

func TestPageSumCountsTokensThatHoldSomething(t *testing.T) {
	for _, order := range []layout.Order{layout.Plain, layout.Pair} {
		l := layout.Layout{Layers: 2, KVHeads: 2, HeadDim: 16, Order: order}
		page, k, row := make([]byte, l.PageBytes()), testKeys(l), make([]byte, l.Shape().RowBytes())
		count := func(rows uint32) uint32 {
			_, n, err := engine.PageSum(l, page, rows, k)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		if n := count(64); n != 0 {
			t.Errorf("%v: %d tokens of an empty page hold something", order, n)
		}
		row[31] = 0x80
		l.SetRow(page, row, 5, 1, 1, 1)
		l.SetRow(page, row, 63, 0, 0, 0)
		for rows, want := range map[uint32]uint32{5: 0, 6: 1, 63: 1, 64: 2} {
			if n := count(rows); n != want {
				t.Errorf("%v: %d of %d tokens hold something, want %d", order, n, rows, want)
			}
		}
	}
}

func TestPageSumRefusals(t *testing.T) {
	l := layout.Layout{Layers: 1, KVHeads: 1, HeadDim: 16}
	other := l
	other.HeadDim = 32
	page, k := make([]byte, l.PageBytes()), testKeys(l)
	for name, err := range map[string]error{
		"a page that is too short": third(engine.PageSum(l, page[1:], 1, k)),
		"no rows":                  third(engine.PageSum(l, page, 0, k)),
		"more rows than a page":    third(engine.PageSum(l, page, 65, k)),
		"keys of another shape":    third(engine.PageSum(l, page, 1, testKeys(other))),
		"a layout that is none":    third(engine.PageSum(layout.Layout{}, page, 1, k)),
	} {
		if errs.KindOf(err) != errs.Invalid {
			t.Errorf("%s: PageSum = %v, want Invalid", name, err)
		}
	}
}

func third[A, B any](_ A, _ B, err error) error { return err }

// A copy has the source's bytes and the digest of what is in the copy, wherever it lies and whatever was there.
func TestCopyPage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := layout.Layout{Layers: rapid.Uint32Range(1, 3).Draw(t, "layers"), KVHeads: rapid.Uint32Range(1, 3).Draw(t, "kv heads"),
			HeadDim: rapid.SampledFrom([]uint32{16, 64}).Draw(t, "head_dim"),
			Order:   rapid.SampledFrom([]layout.Order{layout.Plain, layout.Pair}).Draw(t, "order")}
		rows := rapid.OneOf(rapid.SampledFrom([]uint32{1, 7, 63, 64}), rapid.Uint32Range(1, 64)).Draw(t, "rows")
		off := rapid.SampledFrom([]int{0, 1, 16, 32}).Draw(t, "offset of the copy")
		src, k := make([]byte, l.PageBytes()), testKeys(l)
		room := make([]byte, len(src)+2*64)
		fill(src, rapid.Uint64().Draw(t, "seed"))
		fill(room, 7)
		before := bytes.Clone(room)
		dst := room[64+off:][:len(src)]
		d, nonzero, err := engine.CopyPage(l, dst, src, rows, k)
		if want := byRows(l, src, rows, k); err != nil || d != want || nonzero != rows {
			t.Fatalf("CopyPage(%+v, %d rows) = %v, %d, %v, want %v, %d", l, rows, d, nonzero, err, want, rows)
		}
		if !bytes.Equal(dst, src) {
			t.Fatal("the copy differs from its source")
		}
		if !bytes.Equal(room[:64+off], before[:64+off]) || !bytes.Equal(room[64+off+len(src):], before[64+off+len(src):]) {
			t.Fatal("bytes beside the copy were written")
		}
	})
}

func TestCopyPageCountsTokensThatHoldSomething(t *testing.T) {
	for _, kv := range []int{0, 1} {
		for token := range layout.PageTokens {
			l := layout.Layout{Layers: 2, KVHeads: 2, HeadDim: 64, Order: layout.Pair}
			src, dst, row := make([]byte, l.PageBytes()), make([]byte, l.PageBytes()), make([]byte, l.Shape().RowBytes())
			row[(5*token)%len(row)] = 1 << (token % 8)
			l.SetRow(src, row, token, 1, kv, 0)
			for rows, want := range map[uint32]uint32{uint32(token): 0, uint32(token) + 1: 1, 64: 1} {
				if rows == 0 {
					continue
				}
				if _, n, err := engine.CopyPage(l, dst, src, rows, testKeys(l)); n != want || err != nil {
					t.Errorf("%d tokens of %d rows hold something (%v), want %d (token %d, kv %d)", n, rows, err, want, token, kv)
				}
			}
		}
	}
}

func TestCopyPageRefusals(t *testing.T) {
	l := layout.Layout{Layers: 1, KVHeads: 1, HeadDim: 16}
	page, k := make([]byte, l.PageBytes()), testKeys(l)
	for name, err := range map[string]error{
		"a copy that is too short": third(engine.CopyPage(l, page[1:], page, 1, k)),
		"no rows":                  third(engine.CopyPage(l, page, page, 0, k)),
	} {
		if errs.KindOf(err) != errs.Invalid {
			t.Errorf("%s: CopyPage = %v, want Invalid", name, err)
		}
	}
}

func BenchmarkPage(b *testing.B) {
	l := layout.Layout{Layers: 30, KVHeads: 3, HeadDim: 64, Order: layout.Pair}
	const pages = 64 // beyond the caches
	src, dst, k := make([]byte, pages*l.PageBytes()), make([]byte, pages*l.PageBytes()), testKeys(l)
	fill(src, 1)
	fill(dst, 2)
	at := func(p []byte, i int) []byte { return p[uint64(i*37%pages)*l.PageBytes():][:l.PageBytes()] }
	for name, f := range map[string]func(i int) error{
		"copy only": func(i int) error { copy(at(dst, i), at(src, 5*i)); return nil },
		"digest":    func(i int) error { return third(engine.PageSum(l, at(src, i), 64, k)) },
		"copy and digest": func(i int) error {
			return third(engine.CopyPage(l, at(dst, i), at(src, 5*i), 64, k))
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(l.PageBytes()))
			for i := 0; b.Loop(); i++ {
				if err := f(i); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
