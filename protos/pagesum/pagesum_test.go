package pagesum_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"pgregory.net/rapid"

	"leasehold.dev/protos/pagesum"
)

type vectors struct {
	Pages []struct {
		Name      string
		Layers    int
		KVHeads   int `json:"kv_heads"`
		HeadDim   int `json:"head_dim"`
		ElemBytes int `json:"elem_bytes"`
		Tokens    []int
		Seed      uint32
		Digest    string
	}
	Logits []struct {
		Name   string
		N      int
		Seed   uint32
		Digest string
	}
}

func readVectors(t *testing.T) (v vectors) {
	t.Helper()
	data, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Pages) == 0 || len(v.Logits) == 0 {
		t.Fatal("testdata/vectors.json is empty")
	}
	return v
}

// pattern is n bytes, as testdata/vectors.py makes them.
func pattern(seed uint32, n int) (out []byte) {
	var in [8]byte
	binary.LittleEndian.PutUint32(in[:], seed)
	for c := uint32(0); len(out) < n; c++ {
		binary.LittleEndian.PutUint32(in[4:], c)
		b := sha256.Sum256(in[:])
		out = append(out, b[:]...)
	}
	return out[:n]
}

func testKeys(s pagesum.Shape) *pagesum.Keys {
	layout, revision := sha256.Sum256([]byte("layout")), sha256.Sum256([]byte("revision"))
	return pagesum.Expand(layout[:], revision[:], s)
}

// eachRow calls f for every row of the tokens.
func eachRow(s pagesum.Shape, tokens []int, f func(row int)) {
	for _, t := range tokens {
		for layer := range s.Layers {
			for kv := range 2 {
				for head := range s.KVHeads {
					f(s.Row(t, layer, kv, head))
				}
			}
		}
	}
}

func TestPagesMatchTheIndependentVectors(t *testing.T) {
	for _, v := range readVectors(t).Pages {
		t.Run(v.Name, func(t *testing.T) {
			s := pagesum.Shape{Layers: v.Layers, KVHeads: v.KVHeads, HeadDim: v.HeadDim, ElemBytes: v.ElemBytes}
			sum := testKeys(s).New()
			eachRow(s, v.Tokens, func(row int) { sum.Add(row, pattern(v.Seed+uint32(row), s.RowBytes())) })
			if got := sum.Digest().String(); got != v.Digest {
				t.Errorf("Digest() = %s, want %s", got, v.Digest)
			}
		})
	}
}

func TestLogitsMatchTheIndependentVectors(t *testing.T) {
	for _, v := range readVectors(t).Logits {
		t.Run(v.Name, func(t *testing.T) {
			row := make([]float32, v.N)
			for i, b := 0, pattern(v.Seed, 4*v.N); i < v.N; i++ {
				row[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
			}
			if got := pagesum.Logits(row).String(); got != v.Digest {
				t.Errorf("Logits(%d) = %s, want %s", v.N, got, v.Digest)
			}
		})
	}
}

func drawShape(t *rapid.T) pagesum.Shape {
	return pagesum.Shape{
		Layers: rapid.IntRange(1, 3).Draw(t, "layers"), KVHeads: rapid.IntRange(1, 3).Draw(t, "kv heads"),
		HeadDim: 4 * rapid.IntRange(1, 16).Draw(t, "head_dim/4"), ElemBytes: rapid.SampledFrom([]int{2, 4}).Draw(t, "bytes"),
	}
}

// Rows come from kernels in any order and from any number of partial sums.
func TestOrderAndPartsDoNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawShape(t)
		k := testKeys(s)
		seed := rapid.Uint32().Draw(t, "seed")
		rows := rand.New(rand.NewPCG(uint64(seed), 1)).Perm(s.Rows())[:rapid.IntRange(0, s.Rows()).Draw(t, "rows")]
		one, parts := k.New(), k.New()
		for i, row := range rows {
			one.Add(row, pattern(seed+uint32(row), s.RowBytes()))
			if back := rows[len(rows)-1-i]; i%7 == 6 {
				parts = k.Resume(parts.Digest())
				parts.Add(back, pattern(seed+uint32(back), s.RowBytes()))
			} else {
				parts.Add(back, pattern(seed+uint32(back), s.RowBytes()))
			}
		}
		if one.Digest() != parts.Digest() {
			t.Fatalf("%d rows in order give %v, backwards in parts %v", len(rows), one.Digest(), parts.Digest())
		}
	})
}

func TestOneChangeShows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawShape(t)
		k := testKeys(s)
		row := rapid.IntRange(0, s.Rows()-1).Draw(t, "row")
		data := rapid.SliceOfN(rapid.Byte(), s.RowBytes(), s.RowBytes()).Draw(t, "data")
		sum := func(row int, data []byte) pagesum.Digest {
			x := k.New()
			x.Add(row, data)
			return x.Digest()
		}
		was := sum(row, data)
		bit := rapid.IntRange(0, 8*len(data)-1).Draw(t, "bit")
		data[bit/8] ^= 1 << (bit % 8)
		if sum(row, data) == was {
			t.Errorf("bit %d of row %d changed, the digest did not", bit, row)
		}
		data[bit/8] ^= 1 << (bit % 8)
		if other := (row + 1) % s.Rows(); sum(other, data) == was {
			t.Errorf("the row at %d has the digest of the same row at %d", other, row)
		}
	})
}

func TestWrittenZerosAreNotNothing(t *testing.T) {
	s := pagesum.Shape{Layers: 1, KVHeads: 1, HeadDim: 64, ElemBytes: 2}
	sum := testKeys(s).New()
	if !sum.Digest().IsZero() {
		t.Errorf("an empty page has digest %v, want zero", sum.Digest())
	}
	sum.Add(0, make([]byte, s.RowBytes()))
	if sum.Digest().IsZero() {
		t.Error("a row of zeros adds nothing")
	}
}

func TestKeysDependOnLayoutAndRevision(t *testing.T) {
	s := pagesum.Shape{Layers: 2, KVHeads: 1, HeadDim: 8, ElemBytes: 2}
	a, b := make([]byte, 32), make([]byte, 32)
	b[31] = 1
	seen := map[uint32]bool{}
	for _, p := range [][2][]byte{{a, a}, {a, b}, {b, a}} {
		k := pagesum.Expand(p[0], p[1], s)
		if seen[k.Words()[0]] {
			t.Error("two layouts or revisions share keys")
		}
		seen[k.Words()[0]] = true
	}
}

func TestWordsAreNHThenOddRowKeys(t *testing.T) {
	s := pagesum.Shape{Layers: 2, KVHeads: 3, HeadDim: 64, ElemBytes: 2}
	w := testKeys(s).Words()
	if want := s.Words() + 2 + 2*s.Rows(); len(w) != want {
		t.Fatalf("%d words, want %d", len(w), want)
	}
	for i := s.Words() + 2; i < len(w); i += 2 {
		if w[i]&1 == 0 {
			t.Fatalf("row key %d is even", (i-s.Words()-2)/2)
		}
	}
}

// A row of logits that is longer must not change the keys of a shorter one.
func TestLogitKeysGrowAtTheEnd(t *testing.T) {
	short := append([]uint32(nil), pagesum.LogitWords(1000)...)
	long := pagesum.LogitWords(300_000)
	for i := range short {
		if short[i] != long[i] {
			t.Fatalf("word %d changed from %#x to %#x", i, short[i], long[i])
		}
	}
}

func TestLanesAreTheInverseOfFromLanes(t *testing.T) {
	l := [2]uint64{0x0123456789abcdef, 0xfedcba9876543210}
	d := pagesum.FromLanes(l)
	if got := d.String(); got != "efcdab89674523011032547698badcfe" {
		t.Errorf("FromLanes(%#x) = %s", l, got)
	}
	if d.Lanes() != l {
		t.Errorf("Lanes() = %#x, want %#x", d.Lanes(), l)
	}
}

func TestShapesThatCannotBeDigested(t *testing.T) {
	for name, c := range map[string]struct {
		s    pagesum.Shape
		want bool
	}{
		"bf16 heads of 64 are fine":      {pagesum.Shape{Layers: 30, KVHeads: 3, HeadDim: 64, ElemBytes: 2}, true},
		"a row of one word is odd":       {pagesum.Shape{Layers: 1, KVHeads: 1, HeadDim: 2, ElemBytes: 2}, false},
		"no layers":                      {pagesum.Shape{KVHeads: 1, HeadDim: 64, ElemBytes: 2}, false},
		"negative heads":                 {pagesum.Shape{Layers: 1, KVHeads: -1, HeadDim: 64, ElemBytes: 2}, false},
		"more keys than memory is for":   {pagesum.Shape{Layers: 1 << 20, KVHeads: 2, HeadDim: 64, ElemBytes: 2}, false},
		"a product that would overflow":  {pagesum.Shape{Layers: math.MaxInt, KVHeads: 2, HeadDim: 64, ElemBytes: 2}, false},
		"rows that are no even words":    {pagesum.Shape{Layers: 1, KVHeads: 1, HeadDim: 6, ElemBytes: 2}, false},
		"f32 heads of two are two words": {pagesum.Shape{Layers: 1, KVHeads: 1, HeadDim: 2, ElemBytes: 4}, true},
	} {
		if got := c.s.Valid(); got != c.want {
			t.Errorf("%s: Valid() = %v, want %v", name, got, c.want)
		}
	}
}

func TestBlockedKeysAreTheRowKeys(t *testing.T) {
	s := pagesum.Shape{Layers: 3, KVHeads: 2, HeadDim: 4, ElemBytes: 2}
	k := pagesum.Expand(make([]byte, 32), make([]byte, 32), s)
	words, blocked := k.Words()[s.Words()+2:], k.Blocked()
	if len(blocked) != s.Rows() {
		t.Fatalf("%d keys, want %d", len(blocked), s.Rows())
	}
	for i, got := range blocked {
		token, kv, head, layer := i%64, i/64%2, i/128%2, i/256
		row := s.Row(token, layer, kv, head)
		if want := uint64(words[2*row]) | uint64(words[2*row+1])<<32; got != want {
			t.Fatalf("key %d = %x, want %x of row %d", i, got, want, row)
		}
	}
}
