package tokenizer

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestEncodeMergesByRank(t *testing.T) {
	tok := newVocab("smollm", "b c", "a b", "ab c", "a a", "aa aa").tokenizer(t)
	const bc, ab, aa, aaaa = 256, 257, 259, 260
	for _, c := range []struct {
		name, text string
		want       []int32
	}{
		{"nothing", "", nil},
		{"a byte", "a", []int32{'a'}},
		{"the lower rank first, wherever it stands", "abc", []int32{'a', bc}},
		{"a merge that nothing hides", "ab", []int32{ab}},
		{"of equal ranks the left one", "aaa", []int32{aa, 'a'}},
		{"merged tokens merge again", "aaaaa", []int32{aaaa, 'a'}},
		{"words do not merge over their border", "a1b", []int32{'a', '1', 'b'}},
		{"no merge, no change", "xyz", []int32{'x', 'y', 'z'}},
		{"broken bytes are their tokens", "\xff\x80", []int32{0xFF, 0x80}},
	} {
		if diff := cmp.Diff(c.want, nonEmpty(tok.Encode(c.text, false))); diff != "" {
			t.Errorf("%s: Encode(%q) (-want +got):\n%s", c.name, c.text, diff)
		}
	}
}

func nonEmpty(ids []int32) []int32 {
	if len(ids) == 0 {
		return nil
	}
	return ids
}

func TestLlamaTakesWholeWordsFirst(t *testing.T) {
	merges := []string{"b c", "a b", "ab c"}
	if got := newVocab("gpt2", merges...).tokenizer(t).Encode("abc", false); !slices.Equal(got, []int32{'a', 256}) {
		t.Errorf("gpt2: Encode(abc) = %v, want it merged by rank", got)
	}
	if got := newVocab("llama-bpe", merges...).tokenizer(t).Encode("abc", false); !slices.Equal(got, []int32{258}) {
		t.Errorf("llama-bpe: Encode(abc) = %v, want the token abc", got)
	}
}

func TestSpecialTokens(t *testing.T) {
	tok := newVocab("smollm").add("<|a|>", typeControl).add("<|a|>>", typeControl).add("<own>", typeUserDefined).
		add("|b|", typeControl).add("", typeControl).add("<|a|>", typeControl).tokenizer(t)
	const a, aa, own, b = 256, 257, 258, 259
	for _, c := range []struct {
		name, text string
		special    bool
		want       []int32
	}{
		{"alone", "<|a|>", true, []int32{a}},
		{"between words", "x<|a|>y", true, []int32{'x', a, 'y'}},
		{"twice", "<|a|><|a|>", true, []int32{a, a}},
		{"the longest at one place", "<|a|>>", true, []int32{aa}},
		{"the first of two that overlap", "<|a|b|", true, []int32{'<', '|', 'a', b}},
		{"one that is cut off", "<|a|", true, []int32{'<', '|', 'a', '|'}},
		{"as text when not asked for", "<|a|>", false, []int32{'<', '|', 'a', '|', '>'}},
		{"one of the user's own, asked for or not", "<own>", false, []int32{own}},
		{"and asked for", "<own>", true, []int32{own}},
	} {
		got := tok.Encode(c.text, c.special)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: Encode(%q, %v) (-want +got):\n%s", c.name, c.text, c.special, diff)
		}
		if back := string(tok.Decode(got)); back != c.text {
			t.Errorf("%s: decoded to %q", c.name, back)
		}
	}
}

func TestWhatTheVocabularyLacksIsReplaced(t *testing.T) {
	v := newVocab("smollm")
	for _, b := range []byte{0x04, 0xC3, 0xF1, 0x81} {
		v.tokens[b] = string(toRune[b]) + "x" // no longer the byte's own token
	}
	tok := v.tokenizer(t)
	for _, c := range []struct{ name, text, want string }{
		{"text with tokens for all", "a\x05ü\xff", "a\x05\ufffd\xff"},
		{"a control character", "a\x04b", "a\ufffdb"},
		{"a character by its first byte", "aéb", "a\ufffdb"},
		{"a character by its last byte", "a\u0401b", "a\ufffdb"},
		{"a byte of no character", "a\xc3b", "a\ufffdb"},
		{"a byte after a cut character", "\xe2\x81", "\xe2\ufffd"},
		{"one after the other", "\x04\x04é", "\ufffd\ufffd\ufffd"},
		{"plain text is the same text", "plain", "plain"},
	} {
		if got := tok.Normalize(c.text); got != c.want {
			t.Errorf("%s: Normalize(%q) = %q, want %q", c.name, c.text, got, c.want)
		}
		if got := string(tok.Decode(tok.Encode(c.text, true))); got != c.want {
			t.Errorf("%s: Decode(Encode(%q)) = %q, want %q", c.name, c.text, got, c.want)
		}
	}
}

// slow merges by the definition: again and again the leftmost pair of the lowest rank.
func slow(tok *Tokenizer, word string) []int32 {
	var ids []int32
	for i := range len(word) {
		ids = append(ids, tok.bytes[word[i]])
	}
	for {
		best, at := merge{rank: -1}, -1
		for i := range len(ids) - 1 {
			m, ok := tok.merges[pair{ids[i], ids[i+1]}]
			if ok && (at < 0 || m.rank < best.rank) {
				best, at = m, i
			}
		}
		if at < 0 {
			return ids
		}
		ids = slices.Replace(ids, at, at+2, best.id)
	}
}

func TestMergingIsByTheDefinition(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		known, merges := []string{"a", "b", "c"}, []string(nil)
		for range rapid.IntRange(0, 12).Draw(rt, "merges") {
			l, r := rapid.SampledFrom(known).Draw(rt, "left"), rapid.SampledFrom(known).Draw(rt, "right")
			if len(l)+len(r) <= 8 && !slices.Contains(merges, l+" "+r) {
				merges, known = append(merges, l+" "+r), append(known, l+r)
			}
		}
		tok := newVocab("smollm", merges...).tokenizer(t)
		word := rapid.StringOfN(rapid.SampledFrom([]rune("abc")), 1, 40, -1).Draw(rt, "word")
		if diff := cmp.Diff(slow(tok, word), tok.Encode(word, false)); diff != "" {
			rt.Fatalf("merges %q, Encode(%q) (-definition +ours):\n%s", merges, word, diff)
		}
	})
}

// A quadratic step would take hours here, and the test's own deadline would end it.
func TestLongRunsAreNotQuadratic(t *testing.T) {
	tok := newVocab("smollm", "x x", "xx xx", "xxxx xxxx", "Ġ Ġ", "ĠĠ ĠĠ").add("<|a|>", typeControl).tokenizer(t)
	qwen := newVocab("qwen2", "x x").tokenizer(t)
	for _, unit := range []string{"x", " ", "\n", "1", "<", "<|a|", "'", "\xff", "\x80", "é", " \n", "xy", "\u3000"} {
		text := strings.Repeat(unit, 1<<20/len(unit))
		for _, tok := range []*Tokenizer{tok, qwen} {
			if got := tok.Decode(tok.Encode(text, true)); string(got) != text {
				t.Errorf("a megabyte of %q changed", unit)
			}
		}
	}
}

func FuzzEncode(f *testing.F) {
	for _, seed := range []string{"", "a<|a|>", "  1 x\n", "\xff\xf0\x9f", "I'll ab"} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	tok := newVocab("smollm", "a b", "Ġ a", "Ġa b").add("<|a|>", typeControl).tokenizer(f)
	f.Fuzz(func(t *testing.T, text string, special bool) {
		if got := string(tok.Decode(tok.Encode(text, special))); got != text {
			t.Fatalf("Decode(Encode(%q, %v)) = %q", text, special, got)
		}
	})
}
