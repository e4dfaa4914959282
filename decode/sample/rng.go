package sample

// Uniform is the draw at a position: a number in [0, 1) with 53 random bits. It is the first 64-bit word (low half
// first) of Philox4x32-10 with the seed as key and the position as counter (J. K. Salmon et al., Parallel Random
// Numbers: As Easy as 1, 2, 3, SC 2011).
func Uniform(seed uint64, pos uint32) float64 {
	x := philox([4]uint32{pos}, [2]uint32{uint32(seed), uint32(seed >> 32)})
	return float64((uint64(x[1])<<32|uint64(x[0]))>>11) / (1 << 53)
}

// philox is ten rounds of Philox4x32.
func philox(c [4]uint32, k [2]uint32) [4]uint32 {
	for range 10 {
		a := uint64(c[0]) * 0xD2511F53
		b := uint64(c[2]) * 0xCD9E8D57
		c = [4]uint32{uint32(b>>32) ^ c[1] ^ k[0], uint32(b), uint32(a>>32) ^ c[3] ^ k[1], uint32(a)}
		k[0] += 0x9E3779B9
		k[1] += 0xBB67AE85
	}
	return c
}
