package layout_test

import (
	"encoding/hex"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"leasehold.dev/gpu/layout"
	"leasehold.dev/model"
	"leasehold.dev/protos/errs"
)

func drawLayout(t *rapid.T) layout.Layout {
	l := layout.Layout{
		Layers: rapid.Uint32Range(1, 3).Draw(t, "layers"), KVHeads: rapid.Uint32Range(1, 3).Draw(t, "kv heads"),
		HeadDim: 4 * rapid.Uint32Range(1, 16).Draw(t, "head_dim/4"),
		DType:   rapid.SampledFrom([]layout.DType{layout.BF16, layout.F32}).Draw(t, "dtype"),
	}
	if l.DType == layout.BF16 {
		l.Order = rapid.SampledFrom([]layout.Order{layout.Plain, layout.Pair}).Draw(t, "order")
	}
	return l
}

// Every row has its own bytes, and together they are the whole page.
func TestRowsAreThePage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLayout(t)
		if err := l.Check(); err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		page := make([]byte, l.PageBytes())
		for i := range page {
			page[i] = byte(rng.Uint32())
		}
		s := l.Shape()
		if total := s.Rows() * s.RowBytes(); uint64(total) != l.PageBytes() {
			t.Fatalf("rows have %d bytes, the page %d", total, l.PageBytes())
		}
		back, row := make([]byte, len(page)), make([]byte, s.RowBytes())
		for tok := range layout.PageTokens {
			for layer := range s.Layers {
				for kv := range 2 {
					for head := range s.KVHeads {
						l.Row(row, page, tok, layer, kv, head)
						l.SetRow(back, row, tok, layer, kv, head)
					}
				}
			}
		}
		if string(back) != string(page) {
			t.Fatalf("%+v: rows put back give another page", l)
		}
	})
}

// The places of single elements, by the words of the definition.
func TestPlacesOfElements(t *testing.T) {
	small := layout.Layout{Layers: 2, KVHeads: 3, HeadDim: 8}
	for _, c := range []struct {
		name                       string
		order                      layout.Order
		token, layer, kv, head, at int
		want                       int // offset in elements
	}{
		{"plain starts with K of the first head", layout.Plain, 0, 0, 0, 0, 0, 0},
		{"plain has tokens after each other", layout.Plain, 5, 0, 0, 0, 3, 5*8 + 3},
		{"plain has V after K of all heads", layout.Plain, 0, 0, 1, 0, 0, 3 * 64 * 8},
		{"plain has the next layer after V", layout.Plain, 0, 1, 0, 2, 0, (2*3 + 2) * 64 * 8},
		{"pair has two dims of a token side by side", layout.Pair, 0, 0, 0, 0, 1, 1},
		{"pair has K's next dims after 64 tokens", layout.Pair, 7, 0, 0, 0, 2, 128 + 14},
		{"pair has V after K of the same head", layout.Pair, 0, 0, 1, 0, 0, 64 * 8},
		{"pair has V's next token beside", layout.Pair, 1, 0, 1, 0, 3, 64*8 + 3*2 + 1},
		{"pair has V's next two tokens after all dims", layout.Pair, 2, 0, 1, 0, 0, 64*8 + 16},
		{"pair has heads inside a layer", layout.Pair, 0, 1, 0, 2, 0, (3 + 2) * 2 * 64 * 8},
	} {
		l := small
		l.Order = c.order
		page := make([]byte, l.PageBytes())
		page[2*c.want] = 0xab
		row := make([]byte, 16)
		l.Row(row, page, c.token, c.layer, c.kv, c.head)
		if row[2*c.at] != 0xab {
			t.Errorf("%s: element %d is not at offset %d", c.name, c.at, c.want)
		}
	}
}

// SHA-256 as sha256sum gives it for the bytes of Layout.Hash.
const (
	hashRef    = "f4591b23cfc343def254b3e643ff4db2537f21d15e7f0bfe0f6b5ea311edc6b8"
	hashRefF32 = "ccb4a4fb275f712803070bd217835b15e51041319023f7794458588a2de2a5cf"
	hashCPU    = "94a3693d48f6153182fdd8a61f57f1aa6869802a18abf9327184962bfda18f23"
)

// Hashes are in pages that exist: a change here must be meant, and makes every old page another kind.
func TestHashesAreFixed(t *testing.T) {
	smol := layout.Layout{Layers: 30, KVHeads: 3, HeadDim: 64}
	for name, c := range map[string]struct {
		order layout.Order
		dtype layout.DType
		want  string
	}{
		"ref":     {layout.Plain, layout.BF16, hashRef},
		"ref-f32": {layout.Plain, layout.F32, hashRefF32},
		"cpu":     {layout.Pair, layout.BF16, hashCPU},
	} {
		l := smol
		l.Order, l.DType = c.order, c.dtype
		if h := l.Hash(); hex.EncodeToString(h[:]) != c.want {
			t.Errorf("%s: Hash() = %x, want %s", name, h, c.want)
		}
	}
}

func TestHashCoversEveryField(t *testing.T) {
	base := layout.Layout{Layers: 2, KVHeads: 3, HeadDim: 64}
	seen := map[[32]byte]string{base.Hash(): "base"}
	for name, change := range map[string]func(*layout.Layout){
		"layers": func(l *layout.Layout) { l.Layers++ }, "kv heads": func(l *layout.Layout) { l.KVHeads++ },
		"head dim": func(l *layout.Layout) { l.HeadDim++ }, "dtype": func(l *layout.Layout) { l.DType = layout.F32 },
		"order": func(l *layout.Layout) { l.Order = layout.Pair },
	} {
		l := base
		change(&l)
		if other, dup := seen[l.Hash()]; dup {
			t.Errorf("another %s has the hash of %s", name, other)
		}
		seen[l.Hash()] = name
	}
}

func TestCheckRefusesWhatWeCannotBuild(t *testing.T) {
	for name, c := range map[string]struct {
		l    layout.Layout
		want errs.Kind
	}{
		"no layers":                 {layout.Layout{KVHeads: 1, HeadDim: 64}, errs.Invalid},
		"an odd head":               {layout.Layout{Layers: 1, KVHeads: 1, HeadDim: 6}, errs.Invalid},
		"f32 in pair order":         {layout.Layout{Layers: 1, KVHeads: 1, HeadDim: 64, DType: layout.F32, Order: layout.Pair}, errs.Invalid},
		"an unknown dtype":          {layout.Layout{Layers: 1, KVHeads: 1, HeadDim: 64, DType: 9}, errs.Invalid},
		"an unknown order":          {layout.Layout{Layers: 1, KVHeads: 1, HeadDim: 64, Order: 9}, errs.Invalid},
		"a page of more than 1 GiB": {layout.Layout{Layers: 1024, KVHeads: 64, HeadDim: 128}, errs.Limit},
		"dimensions that overflow":  {layout.Layout{Layers: 1 << 31, KVHeads: 1 << 31, HeadDim: 1 << 31}, errs.Invalid},
	} {
		if err := c.l.Check(); err == nil || errs.KindOf(err) != c.want {
			t.Errorf("%s: Check() = %v, want kind %v", name, err, c.want)
		}
	}
}

func TestLayoutOfABackEnd(t *testing.T) {
	cfg := model.Config{Layers: 30, KVHeads: 3, HeadDim: 64}
	for backend, want := range map[string]layout.Layout{
		layout.CPU:    {Layers: 30, KVHeads: 3, HeadDim: 64, Order: layout.Pair},
		layout.Ref:    {Layers: 30, KVHeads: 3, HeadDim: 64},
		layout.RefF32: {Layers: 30, KVHeads: 3, HeadDim: 64, DType: layout.F32},
	} {
		if l, err := layout.Of(cfg, backend); err != nil || l != want {
			t.Errorf("Of(%s) = %+v, %v, want %+v", backend, l, err, want)
		}
	}
	if _, err := layout.Of(cfg, "cuda"); errs.KindOf(err) != errs.Invalid {
		t.Errorf("Of(cuda) = %v, want Invalid", err)
	}
	if got := (layout.Layout{Layers: 30, KVHeads: 3, HeadDim: 64}).PageBytes(); got != 1474560 {
		t.Errorf("PageBytes() = %d, want 1474560", got)
	}
}

func TestNumericsClassesDiffer(t *testing.T) {
	seen := map[string]string{}
	for _, b := range []string{layout.CPU, layout.Ref, layout.RefF32} {
		c := layout.NumericsClass(b)
		if c == "" || seen[c] != "" {
			t.Errorf("back end %s has class %q, as has %q", b, c, seen[c])
		}
		seen[c] = b
	}
	if c := layout.NumericsClass("cuda"); c != "" {
		t.Errorf("NumericsClass(cuda) = %q, want none", c)
	}
}
