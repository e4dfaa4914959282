package tokenizer

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// cut returns the pieces of b between the places in mask: bit i set cuts after byte i.
func cut(b []byte, mask int) [][]byte {
	var pieces [][]byte
	from := 0
	for i := range b {
		if mask>>i&1 == 1 || i == len(b)-1 {
			pieces = append(pieces, b[from:i+1])
			from = i + 1
		}
	}
	return pieces
}

// pieceTokenizer has one normal token for each piece, and a control token after them.
func pieceTokenizer(pieces [][]byte) *Tokenizer {
	t := &Tokenizer{pieces: append(slices.Clone(pieces), []byte("<|end|>"))}
	t.types = slices.Repeat([]int32{typeNormal}, len(pieces))
	t.types = append(t.types, typeControl)
	return t
}

func TestAStreamNeverSplitsACharacter(t *testing.T) {
	for _, text := range []string{"🙂", "é🙂", "a☕b", "👩\u200d👧"} {
		for mask := range 1 << (len(text) - 1) {
			pieces := cut([]byte(text), mask)
			s := pieceTokenizer(pieces).NewStream()
			var out strings.Builder
			for id := range pieces {
				part := s.Push(int32(id))
				if !utf8.ValidString(part) || strings.Contains(part, replacement) {
					t.Fatalf("%q cut into %q: piece %d gave %q", text, pieces, id, part)
				}
				out.WriteString(part)
			}
			if rest := s.Flush(); rest != "" || out.String() != text {
				t.Fatalf("%q cut into %q: streamed %q and %q", text, pieces, out.String(), rest)
			}
		}
	}
}

func TestAStreamGivesACharacterWithItsLastByte(t *testing.T) {
	s := pieceTokenizer([][]byte{[]byte("a\xf0\x9f"), []byte("\x99"), []byte("\x82b")}).NewStream()
	for id, want := range []string{"a", "", "🙂b"} {
		if got := s.Push(int32(id)); got != want {
			t.Errorf("Push(%d) = %q, want %q", id, got, want)
		}
	}
}

func TestBrokenSequencesBecomeOneReplacementEach(t *testing.T) {
	for _, c := range []struct{ name, bytes, want string }{
		{"a byte that starts nothing", "a\xffb", "a\ufffdb"},
		{"two of them", "\xff\xfe", "\ufffd\ufffd"},
		{"a start without its end", "\xf0\x9f\x99x", "\ufffdx"},
		{"a start at the end", "x\xf0\x9f\x99", "x\ufffd"},
		{"a start before another start", "\xe2\x98\xc3\xa9", "\ufffdé"},
		{"a lone continuation", "\x80a", "\ufffda"},
		{"an overlong form is no start", "\xc0\x80", "\ufffd\ufffd"},
		{"a surrogate is no character", "\xed\xa0\x80", "\ufffd\ufffd\ufffd"},
		{"a true U+FFFD stays", "\ufffd", "\ufffd"},
		{"beyond the last character", "\xf4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd"},
	} {
		for mask := range 1 << (len(c.bytes) - 1) {
			pieces := cut([]byte(c.bytes), mask)
			s := pieceTokenizer(pieces).NewStream()
			got := ""
			for id := range pieces {
				got += s.Push(int32(id))
			}
			if got += s.Flush(); got != c.want {
				t.Errorf("%s: %q streamed as %q, want %q", c.name, pieces, got, c.want)
			}
		}
	}
}

func TestControlTokensGiveNothing(t *testing.T) {
	tok := pieceTokenizer([][]byte{[]byte("\xc3"), []byte("\xa9")})
	s := tok.NewStream()
	got := s.Push(0) + s.Push(2) + s.Push(99) + s.Push(-1) + s.Push(1) + s.Flush()
	if got != "é" {
		t.Errorf("a character around control and unknown ids = %q, want é", got)
	}
}

func TestAStreamCanBeUsedAgainAfterFlush(t *testing.T) {
	s := pieceTokenizer([][]byte{[]byte("\xc3"), []byte("\xa9")}).NewStream()
	if got := s.Push(0) + s.Flush() + s.Push(1) + s.Flush() + s.Flush(); got != "\ufffd\ufffd" {
		t.Errorf("streamed %q, want two replacements", got)
	}
}

func TestAStreamsTextDoesNotDependOnTheCuts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.OneOf(rapid.SliceOfN(rapid.Byte(), 1, 12), rapid.Map(rapid.StringN(1, 4, 12), func(s string) []byte { return []byte(s) })).
			Filter(func(b []byte) bool { return len(b) > 0 }).Draw(t, "bytes")
		stream := func(mask int) string {
			pieces := cut(b, mask)
			s, out := pieceTokenizer(pieces).NewStream(), ""
			for id := range pieces {
				out += s.Push(int32(id))
			}
			return out + s.Flush()
		}
		whole := stream(0)
		if got := stream(rapid.IntRange(0, 1<<len(b)-1).Draw(t, "cuts")); got != whole {
			t.Fatalf("%q streams as %q in pieces and as %q whole", b, got, whole)
		}
		if utf8.Valid(b) && whole != string(b) || !utf8.ValidString(whole) {
			t.Fatalf("%q streams as %q", b, whole)
		}
	})
}
