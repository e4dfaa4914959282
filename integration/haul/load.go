package haul

import (
	"encoding/binary"
	"math/rand/v2"

	"leasehold.dev/gpu/layout"
	"leasehold.dev/gpu/pool"
	"leasehold.dev/protos/errs"
)

// Total is about how many bytes a run moves: as many whole pages as fit.
const Total = 256 << 20

// Load is a list of pages to move.
type Load struct {
	PageBytes int  `json:"page_bytes"`
	InOrder   bool `json:"in_order,omitempty"` // else scattered: shuffled on both sides
	Bytes     int  `json:"bytes,omitempty"`    // default Total
}

// layouts are bf16 pages in pair order with head_dim 64, by size: the layouts' layers and heads.
var layouts = map[int][2]uint32{32 << 10: {2, 1}, 256 << 10: {16, 1}, 1 << 20: {64, 1}, 1_474_560: {30, 3}, 8 << 20: {64, 8}}

// Layout of a page, which its digest needs.
func (l Load) Layout() (layout.Layout, error) {
	n, ok := layouts[l.PageBytes]
	if !ok {
		return layout.Layout{}, errs.New(errs.Invalid, "no layout has pages of %d bytes", l.PageBytes)
	}
	return layout.Layout{Layers: n[0], KVHeads: n[1], HeadDim: 64, DType: layout.BF16, Order: layout.Pair}, nil
}

// Pages is how many are moved.
func (l Load) Pages() int {
	if l.Bytes > 0 {
		return l.Bytes / l.PageBytes
	}
	return Total / l.PageBytes
}

// Size is how many bytes are moved.
func (l Load) Size() int { return l.Pages() * l.PageBytes }

// Order is the load's name for how its pages lie.
func (l Load) Order() string {
	if l.InOrder {
		return "in_order"
	}
	return "scattered"
}

// side is an end of a load, and the seed of its order.
type side uint64

const (
	atSource side = iota + 1
	atDestination
)

// order is the page of each place at one side.
func (l Load) order(s side) []uint32 {
	at := make([]uint32, l.Pages())
	for i := range at {
		at[i] = uint32(i)
	}
	if !l.InOrder {
		r := rand.New(rand.NewPCG(uint64(s), uint64(l.PageBytes)))
		r.Shuffle(len(at), func(i, j int) { at[i], at[j] = at[j], at[i] })
	}
	return at
}

// Pages is one side's memory.
type Pages struct {
	Load Load
	Pool *pool.Pool
	At   []uint32 // the page of each place
}

func newPages(l Load, s side) (*Pages, error) {
	p, err := pool.New(uint32(l.Pages()), uint64(l.PageBytes))
	if err != nil {
		return nil, err
	}
	return &Pages{l, p, l.order(s)}, nil
}

// Place is the memory of a place.
func (p *Pages) Place(i int) []byte { return p.Pool.Page(p.At[i]) }

// The pattern: word j of place i is (i*words+j+1) times this odd number, so no word is zero and no two are equal.
const pattern = 0x9E3779B97F4A7C15

func (p *Pages) fill() {
	w := uint64(0)
	for i := range p.At {
		for b := p.Place(i); len(b) > 0; b = b[8:] {
			w++
			binary.LittleEndian.PutUint64(b, w*pattern)
		}
	}
}

func (p *Pages) clear() {
	for i := range p.At {
		clear(p.Place(i))
	}
}

// check compares the memory with the pattern.
func (p *Pages) check() error {
	w := uint64(0)
	for i := range p.At {
		for b := p.Place(i); len(b) > 0; b = b[8:] {
			if w++; binary.LittleEndian.Uint64(b) != w*pattern {
				return errs.New(errs.Corrupt, "word %d of the load is wrong, in page %d of %d", w, i, len(p.At))
			}
		}
	}
	return nil
}
