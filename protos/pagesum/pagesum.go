package pagesum

import (
	"encoding/binary"
	"encoding/hex"
	"math/bits"
)

// PageTokens is the number of tokens in a page.
const PageTokens = 64

// Size of a digest in bytes.
const Size = 16

// Digest is two 64-bit lanes, little endian.
type Digest [Size]byte

// IsZero says whether no row was added. A page with rows has this digest once in 2^64 or less.
func (d Digest) IsZero() bool { return d == Digest{} }

// String is the digest in hex.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// Lanes are the digest's two words.
func (d Digest) Lanes() [2]uint64 {
	return [2]uint64{binary.LittleEndian.Uint64(d[:]), binary.LittleEndian.Uint64(d[8:])}
}

// FromLanes is the inverse of [Digest.Lanes].
func FromLanes(l [2]uint64) (d Digest) {
	binary.LittleEndian.PutUint64(d[:], l[0])
	binary.LittleEndian.PutUint64(d[8:], l[1])
	return d
}

// Shape is what the digest needs to know of a model's KV.
type Shape struct {
	Layers, KVHeads, HeadDim, ElemBytes int
}

// Words in a row. The definition needs an even number.
func (s Shape) Words() int { return s.HeadDim * s.ElemBytes / 4 }

// RowBytes is the size of one row.
func (s Shape) RowBytes() int { return s.HeadDim * s.ElemBytes }

// Rows of a full page.
func (s Shape) Rows() int { return PageTokens * s.Layers * 2 * s.KVHeads }

// Row is the index of one row; t is the token's place in the page, kv 0 for K and 1 for V.
func (s Shape) Row(t, layer, kv, head int) int {
	return ((t*s.Layers+layer)*2+kv)*s.KVHeads + head
}

// Valid says whether rows have a whole and even number of words, and whether the keys stay under 1 GiB.
func (s Shape) Valid() bool {
	const most = 1 << 20
	for _, n := range []int{s.Layers, s.KVHeads, s.HeadDim, s.ElemBytes} {
		if n < 1 || n > most {
			return false
		}
	}
	return s.RowBytes()%8 == 0 && s.Layers*s.KVHeads <= most
}

// Sum adds up the rows of one page.
type Sum struct {
	k *Keys
	l [2]uint64
}

// New starts the sum of an empty page.
func (k *Keys) New() *Sum { return &Sum{k: k} }

// Resume continues a sum whose rows so far have the digest d.
func (k *Keys) Resume(d Digest) *Sum { return &Sum{k: k, l: d.Lanes()} }

// Add adds one row, RowBytes long, in logical order. Adding a row twice is the caller's mistake, and shows in the digest.
func (s *Sum) Add(row int, data []byte) {
	n := s.k.nhRow(data)
	key := s.k.row(row)
	s.l[0] += key * n[0]
	s.l[1] += (bits.RotateLeft64(key, 32) | 1) * n[1]
}

// Digest of the rows added so far.
func (s *Sum) Digest() Digest { return FromLanes(s.l) }

func (k *Keys) nhRow(data []byte) (n [2]uint64) {
	nh := k.words[:k.shape.Words()+2]
	for i := 0; i < k.shape.Words(); i += 2 {
		a, b := binary.LittleEndian.Uint32(data[4*i:]), binary.LittleEndian.Uint32(data[4*i+4:])
		n[0] += uint64(a+nh[i]) * uint64(b+nh[i+1])
		n[1] += uint64(a+nh[i+2]) * uint64(b+nh[i+3])
	}
	return n
}
