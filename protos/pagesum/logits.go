package pagesum

import (
	"math"
	"math/bits"
	"sync"
)

const (
	logitContext = "leasehold/logits/v1"
	logitBlock   = 1024 // words under one block key
	logitNH      = logitBlock + 2
)

var logitKeys struct {
	sync.Mutex
	words []uint32
}

// LogitWords are the keys of a row of vocab logits: 1026 NH words, then the key of each block of 1024 as low and high
// word. The caller must not write to them.
func LogitWords(vocab int) []uint32 {
	n := logitNH + 2*((vocab+logitBlock-1)/logitBlock)
	logitKeys.Lock()
	defer logitKeys.Unlock()
	if len(logitKeys.words) < n {
		w := stream([]byte(logitContext), n)
		for i := logitNH; i < n; i += 2 {
			w[i] |= 1
		}
		logitKeys.words = w
	}
	return logitKeys.words[:n:n]
}

// Logits is the digest of one row of logits, over the bits of its floats.
func Logits(row []float32) Digest {
	w := LogitWords(len(row))
	var l [2]uint64
	for b := 0; b*logitBlock < len(row); b++ {
		n := logitBlockNH(row[b*logitBlock:min(len(row), (b+1)*logitBlock)], w)
		key := uint64(w[logitNH+2*b]) | uint64(w[logitNH+2*b+1])<<32
		l[0] += key * n[0]
		l[1] += (bits.RotateLeft64(key, 32) | 1) * n[1]
	}
	return FromLanes(l)
}

func logitBlockNH(row []float32, nh []uint32) (n [2]uint64) {
	for i := 0; i < logitBlock; i += 2 {
		var a, b uint32
		if i < len(row) {
			a = math.Float32bits(row[i])
		}
		if i+1 < len(row) {
			b = math.Float32bits(row[i+1])
		}
		n[0] += uint64(a+nh[i]) * uint64(b+nh[i+1])
		n[1] += uint64(a+nh[i+2]) * uint64(b+nh[i+3])
	}
	return n
}
