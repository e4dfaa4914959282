package tokenizer

// The alphabet of byte-level BPE, from GPT-2: a vocabulary is written as text, one printable character a byte. Bytes
// that are printable in Latin-1 stand for themselves, the others follow from U+0100 on in order.
var toRune, fromRune = alphabet()

func alphabet() (to [256]rune, from [0x100 + 68]int16) {
	for r := range from {
		from[r] = -1
	}
	next := rune(0x100)
	for b := range to {
		r := rune(b)
		if !(r >= '!' && r <= '~' || r >= 0xA1 && r <= 0xAC || r >= 0xAE) {
			r = next
			next++
		}
		to[b], from[r] = r, int16(b)
	}
	return to, from
}

// bytesOf is what a vocabulary entry stands for; ok is false if it has a character outside of the alphabet.
func bytesOf(entry string) (b []byte, ok bool) {
	b = make([]byte, 0, len(entry))
	for _, r := range entry {
		if r >= rune(len(fromRune)) || fromRune[r] < 0 {
			return nil, false
		}
		b = append(b, byte(fromRune[r]))
	}
	return b, true
}
