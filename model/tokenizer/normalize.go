package tokenizer

import (
	"strings"
	"unicode/utf8"
)

const replacement = string(utf8.RuneError)

// Normalize is the text that Encode encodes: text, with U+FFFD in place of each character, or byte that is part of
// none, that the vocabulary has no tokens for (a few control characters and unassigned planes in SmolLM2). Other
// engines drop these without a word; a caller who would rather refuse them compares Normalize(text) with text.
func (t *Tokenizer) Normalize(text string) string {
	at := t.lacking(text)
	if at == len(text) {
		return text
	}
	var out strings.Builder
	for ; at < len(text); at = t.lacking(text) {
		out.WriteString(text[:at])
		out.WriteString(replacement)
		_, n := utf8.DecodeRuneInString(text[at:])
		text = text[at+n:]
	}
	out.WriteString(text)
	return out.String()
}

// lacking is where the first character begins that has a byte without a token, or len(text).
func (t *Tokenizer) lacking(text string) int {
	for i := 0; i < len(text); i++ {
		if t.bytes[text[i]] >= 0 {
			continue
		}
		for from := max(0, i-utf8.UTFMax+1); from < i; from++ {
			if r, n := utf8.DecodeRuneInString(text[from:]); (r != utf8.RuneError || n > 1) && from+n > i {
				return from
			}
		}
		return i
	}
	return len(text)
}
