package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Stream turns ids into text as they come. All that it returns is valid UTF-8: bytes of a character wait until the
// character is whole, and each broken sequence becomes one U+FFFD as soon as it is known to be broken (the Unicode
// standard's "maximal subpart" practice). So the text does not depend on where the tokens' borders lie.
type Stream struct {
	t    *Tokenizer
	rest []byte // the start of a character, at most 3 bytes
}

// NewStream starts a text.
func (t *Tokenizer) NewStream() *Stream { return &Stream{t: t} }

// Push adds one token and returns the text that is whole now. Control tokens and ids outside of the vocabulary give
// nothing.
func (s *Stream) Push(id int32) string {
	if s.t.IsControl(id) {
		return ""
	}
	return s.write(s.t.Piece(id))
}

// Flush ends the text: a character that is still broken becomes U+FFFD. The stream can be used again afterwards.
func (s *Stream) Flush() string {
	if len(s.rest) == 0 {
		return ""
	}
	s.rest = s.rest[:0]
	return string(utf8.RuneError)
}

func (s *Stream) write(piece []byte) string {
	if len(s.rest) == 0 && utf8.Valid(piece) {
		return string(piece)
	}
	s.rest = append(s.rest, piece...)
	var out strings.Builder
	b := s.rest
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			if !utf8.FullRune(b) {
				break
			}
			n = brokenPrefix(b)
		}
		out.WriteRune(r)
		b = b[n:]
	}
	s.rest = append(s.rest[:0], b...)
	return out.String()
}

// brokenPrefix is how many bytes of b, which starts with a broken sequence, are the start of some character; at least
// 1.
func brokenPrefix(b []byte) int {
	n := 1
	for n < len(b) && !utf8.FullRune(b[:n+1]) {
		n++
	}
	return n
}
