package tokenizer

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"leasehold.dev/model/gguf"
)

// Token types, numbered as in GGUF.
const (
	typeNormal      = 1
	typeUnknown     = 2
	typeControl     = 3
	typeUserDefined = 4
)

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: tokenizer: %s", gguf.ErrFormat, fmt.Sprintf(format, args...))
}

func unsupported(format string, args ...any) error {
	return fmt.Errorf("%w: tokenizer: %s", gguf.ErrUnsupported, fmt.Sprintf(format, args...))
}

func (t *Tokenizer) readRules(f *gguf.File) error {
	if kind, _ := f.String("tokenizer.ggml.model"); kind != "gpt2" {
		return unsupported("model %.32q (gpt2 is known)", kind)
	}
	pre, _ := f.String("tokenizer.ggml.pre")
	split, ok := splitters[pre]
	if !ok {
		return unsupported("pre-tokenizer %.32q", pre)
	}
	t.split = split
	t.wholeWords = pre == "llama-bpe" || pre == "llama3" || pre == "llama-v3"
	return nil
}

func (t *Tokenizer) readVocabulary(f *gguf.File) error {
	entries, ok := f.Strings("tokenizer.ggml.tokens")
	if !ok || len(entries) == 0 || len(entries) > math.MaxInt32 {
		return malformed("no tokens")
	}
	t.types, ok = f.Int32s("tokenizer.ggml.token_type")
	if !ok || len(t.types) != len(entries) {
		return malformed("%d token types for %d tokens", len(t.types), len(entries))
	}
	t.pieces = make([][]byte, len(entries))
	for id, entry := range entries {
		piece, inAlphabet := bytesOf(entry)
		switch {
		case t.special(id):
			piece = []byte(entry)
		case !inAlphabet && t.types[id] == typeNormal:
			return malformed("token %d is not in the byte alphabet", id)
		case !inAlphabet:
			piece = []byte(entry)
		}
		t.pieces[id] = piece
	}
	return t.readBytes()
}

// special reports whether an entry's text is meant as it stands, not in the byte alphabet.
func (t *Tokenizer) special(id int) bool {
	return t.types[id] == typeControl || t.types[id] == typeUserDefined || t.types[id] == typeUnknown
}

// readBytes finds the token of each byte. Vocabularies lack some that their training text never had, but those of the
// replacement character must be there.
func (t *Tokenizer) readBytes() error {
	for b := range t.bytes {
		t.bytes[b] = -1
	}
	for id, piece := range t.pieces {
		if t.types[id] == typeNormal && len(piece) == 1 && t.bytes[piece[0]] < 0 {
			t.bytes[piece[0]] = int32(id)
		}
	}
	for _, b := range []byte(replacement) {
		if t.bytes[b] < 0 {
			return malformed("no token for byte %#02x", b)
		}
	}
	return nil
}

func (t *Tokenizer) readMerges(f *gguf.File) error {
	lines, ok := f.Strings("tokenizer.ggml.merges")
	if !ok {
		return malformed("no merges")
	}
	ids := make(map[string]int32, len(t.pieces))
	for id, piece := range t.pieces {
		if _, twice := ids[string(piece)]; t.types[id] == typeNormal && !twice {
			ids[string(piece)] = int32(id)
		}
	}
	t.merges = make(map[pair]merge, len(lines))
	for rank, line := range lines {
		left, right, ok := strings.Cut(line, " ")
		l, okL := bytesOf(left)
		r, okR := bytesOf(right)
		if !ok || !okL || !okR || len(l) == 0 || len(r) == 0 {
			return malformed("merge %d is no pair", rank)
		}
		a, okA := ids[string(l)]
		b, okB := ids[string(r)]
		ab, okAB := ids[string(l)+string(r)]
		if !okA || !okB || !okAB {
			return malformed("merge %d uses a word that is no token", rank)
		}
		if _, twice := t.merges[pair{a, b}]; !twice {
			t.merges[pair{a, b}] = merge{rank: int32(rank), id: ab}
		}
	}
	t.readWords(ids)
	return nil
}

func (t *Tokenizer) readSpecials(f *gguf.File) error {
	for id := range t.pieces {
		if t.special(id) {
			t.specials.add(t.pieces[id], int32(id), t.types[id] != typeUserDefined)
		}
	}
	t.bos = -1
	if id, ok := f.Uint32("tokenizer.ggml.bos_token_id"); ok && int64(id) < int64(len(t.pieces)) {
		t.bos = int32(id)
	}
	t.addBOS, _ = f.Bool("tokenizer.ggml.add_bos_token")
	t.addBOS = t.addBOS && t.bos >= 0
	return t.readEnds(f)
}

// ends are the texts of control tokens that end a turn in one model family or another. A file names one or two ends
// by id; the others are known by their text only.
var ends = []string{
	"<|endoftext|>", "<|im_end|>", "<|end|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<end_of_turn>", "<|return|>", "</s>",
}

func (t *Tokenizer) readEnds(f *gguf.File) error {
	t.eog = make([]bool, len(t.pieces))
	for _, key := range []string{"eos", "eot", "eom"} {
		key = "tokenizer.ggml." + key + "_token_id"
		id, ok := f.Uint32(key)
		if f.Has(key) && (!ok || int64(id) >= int64(len(t.pieces))) {
			return malformed("%s is no token", key)
		}
		if ok {
			t.eog[id] = true
		}
	}
	for id, piece := range t.pieces {
		if t.types[id] == typeControl && slices.Contains(ends, string(piece)) {
			t.eog[id] = true
		}
	}
	return nil
}
