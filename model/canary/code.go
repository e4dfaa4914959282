package canary

import (
	"math/bits"
	"math/rand/v2"
)

const (
	codeDims = 40
	// maxCross bounds the product of two codes, of 40 that a code has with itself.
	maxCross = 20
)

// codes are the tokens' codes: bit i set is +1 in dimension i, clear is -1. They are drawn in order from a fixed seed, and
// a draw too near to one before it is drawn again.
var codes = func() (book [Vocabulary]uint64) {
	rng := rand.New(rand.NewPCG(40, 512))
	for id := range book {
		for book[id] = draw(rng); near(book[:id], book[id]); {
			book[id] = draw(rng)
		}
	}
	return book
}()

func draw(rng *rand.Rand) uint64 { return rng.Uint64() & (1<<codeDims - 1) }

// cross is the product of two codes.
func cross(a, b uint64) int { return codeDims - 2*bits.OnesCount64(a^b) }

func near(book []uint64, code uint64) bool {
	for _, other := range book {
		if c := cross(code, other); c > maxCross || c < -maxCross {
			return true
		}
	}
	return false
}

// sign is dimension d of a token's code.
func sign(id, d int) float64 { return float64(int(codes[id]>>d&1)*2 - 1) }
