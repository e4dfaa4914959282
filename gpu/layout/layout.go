package layout

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/pagesum"
)

// PageTokens is the number of tokens in a page.
const PageTokens = pagesum.PageTokens

// DType is the element type of KV.
type DType uint8

// Element types.
const (
	BF16 DType = iota
	F32
)

// Bytes of one element.
func (d DType) Bytes() uint64 {
	if d == F32 {
		return 4
	}
	return 2
}

// String is the type's name, as hashed.
func (d DType) String() string {
	switch d {
	case BF16:
		return "bf16"
	case F32:
		return "f32"
	}
	return fmt.Sprintf("dtype(%d)", uint8(d))
}

// Order is the arrangement of elements inside a page.
type Order uint8

// Orders.
const (
	// Plain is [layer][K|V][head][64 tokens][head_dim].
	Plain Order = iota
	// Pair is [layer][head] blocks of 2*64*head_dim elements: K as [dim pairs][64 tokens][2 dims], then V as
	// [token pairs][head_dim][2 tokens]. Vectors for decode, broadcasts for prefill.
	Pair
)

// String is the order's name, as hashed.
func (o Order) String() string {
	switch o {
	case Plain:
		return "plain"
	case Pair:
		return "pair"
	}
	return fmt.Sprintf("order(%d)", uint8(o))
}

// Layout is everything that gives a page's bytes their meaning, but for the weights.
type Layout struct {
	Layers, KVHeads, HeadDim uint32
	DType                    DType
	Order                    Order
}

// Check says whether l is one that we can build: rows of whole, even words, and a page under 1 GiB.
func (l Layout) Check() error {
	if l.DType > F32 || l.Order > Pair {
		return errs.New(errs.Invalid, "layout: %v in %v order is unknown", l.DType, l.Order)
	}
	if !l.Shape().Valid() {
		return errs.New(errs.Invalid, "layout: %d layers, %d kv heads, head_dim %d of %v: rows need whole, even words",
			l.Layers, l.KVHeads, l.HeadDim, l.DType)
	}
	if l.Order == Pair && l.DType != BF16 {
		return errs.New(errs.Invalid, "layout: pair order holds bf16, not %v", l.DType)
	}
	if n := l.PageBytes(); n > 1<<30 {
		return errs.New(errs.Limit, "layout: a page of %d bytes, most is %d", n, 1<<30)
	}
	return nil
}

// PageBytes is the size of one page.
func (l Layout) PageBytes() uint64 {
	return 2 * PageTokens * uint64(l.Layers) * uint64(l.KVHeads) * uint64(l.HeadDim) * l.DType.Bytes()
}

// Shape is what the page digest needs of l.
func (l Layout) Shape() pagesum.Shape {
	return pagesum.Shape{
		Layers: int(l.Layers), KVHeads: int(l.KVHeads), HeadDim: int(l.HeadDim), ElemBytes: int(l.DType.Bytes()),
	}
}

// Hash is SHA-256 over the layout's fields. Equal hashes: a page of one side means the same on the other.
func (l Layout) Hash() [32]byte {
	b := []byte("leasehold/layout/v1\x00" + l.DType.String() + "\x00" + l.Order.String() + "\x00")
	for _, n := range []uint32{PageTokens, l.Layers, l.KVHeads, l.HeadDim} {
		b = binary.LittleEndian.AppendUint32(b, n)
	}
	return sha256.Sum256(b)
}
