package pagesum

import (
	"crypto/sha256"
	"encoding/binary"
	"sync"
)

const pageContext = "leasehold/pagesum/v1"

// Keys are the expanded keys of one layout and one set of weights. Read-only, for any number of goroutines.
type Keys struct {
	shape   Shape
	words   []uint32
	blocked func() []uint64
}

// Expand makes the keys of a layout hash and a weights revision (32 bytes each). s must be valid.
func Expand(layoutHash, revision []byte, s Shape) *Keys {
	prefix := append(append([]byte(pageContext), layoutHash...), revision...)
	nh := s.Words() + 2
	w := stream(prefix, nh+2*s.Rows())
	for i := nh; i < len(w); i += 2 {
		w[i] |= 1
	}
	k := &Keys{shape: s, words: w}
	k.blocked = sync.OnceValue(k.block)
	return k
}

// Shape that the keys were expanded for.
func (k *Keys) Shape() Shape { return k.shape }

// Words are the NH words, then each row key as low and high word. The caller must not write to them.
func (k *Keys) Words() []uint32 { return k.words }

// Blocked are the row keys as [layer][kv head][K|V][64 tokens]: the order of who reads a page head by head. Made at the
// first call; the caller must not write to them.
func (k *Keys) Blocked() []uint64 { return k.blocked() }

func (k *Keys) block() []uint64 {
	s := k.shape
	out := make([]uint64, 0, s.Rows())
	for layer := range s.Layers {
		for head := range s.KVHeads {
			for kv := range 2 {
				for t := range PageTokens {
					out = append(out, k.row(s.Row(t, layer, kv, head)))
				}
			}
		}
	}
	return out
}

func (k *Keys) row(i int) uint64 {
	at := k.shape.Words() + 2 + 2*i
	return uint64(k.words[at]) | uint64(k.words[at+1])<<32
}

// stream is the first n words of SHA-256(prefix || counter), counter = 0, 1, ...
func stream(prefix []byte, n int) []uint32 {
	const perBlock = sha256.Size / 4
	in := append(append([]byte(nil), prefix...), 0, 0, 0, 0)
	w := make([]uint32, 0, (n+perBlock-1)/perBlock*perBlock)
	for c := uint32(0); len(w) < n; c++ {
		binary.LittleEndian.PutUint32(in[len(prefix):], c)
		b := sha256.Sum256(in)
		for i := 0; i < len(b); i += 4 {
			w = append(w, binary.LittleEndian.Uint32(b[i:]))
		}
	}
	return w[:n:n]
}
