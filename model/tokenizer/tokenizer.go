package tokenizer

import (
	"leasehold.dev/model/gguf"
)

// Tokenizer encodes and decodes for one model.
type Tokenizer struct {
	pieces [][]byte // what each id stands for
	types  []int32
	eog    []bool
	bos    int32 // -1 if the file has none
	addBOS bool
	bytes  [256]int32 // by byte; -1 if the vocabulary lacks it

	merges     map[pair]merge
	words      map[string]int32 // words whose token is known without merging
	wholeWords bool             // a word that is a token is never merged
	split      splitter
	specials   specials
}

// Vocab is the number of token ids.
func (t *Tokenizer) Vocab() int { return len(t.pieces) }

// IsControl reports whether id is a control token, which stands for no text of an answer.
func (t *Tokenizer) IsControl(id int32) bool { return t.has(id) && t.types[id] == typeControl }

// IsEOG reports whether id ends a generation.
func (t *Tokenizer) IsEOG(id int32) bool { return t.has(id) && t.eog[id] }

// BOS is the token that starts a text, and whether the file asks for it before every prompt; -1 if it names none.
// Encode never adds it.
func (t *Tokenizer) BOS() (id int32, add bool) { return t.bos, t.addBOS }

// Piece is the bytes that id stands for, a control token's text included; nil for an id outside of the vocabulary.
// The bytes are the tokenizer's own: do not change them.
func (t *Tokenizer) Piece(id int32) []byte {
	if !t.has(id) {
		return nil
	}
	return t.pieces[id]
}

// Decode joins the pieces of ids. It is the inverse of Encode, so control tokens give their text; a [Stream] leaves
// them out.
func (t *Tokenizer) Decode(ids []int32) []byte {
	n := 0
	for _, id := range ids {
		n += len(t.Piece(id))
	}
	out := make([]byte, 0, n)
	for _, id := range ids {
		out = append(out, t.Piece(id)...)
	}
	return out
}

func (t *Tokenizer) has(id int32) bool { return id >= 0 && int(id) < len(t.pieces) }

// Encode is the token ids of text. With special, the text of a control token becomes that token; without, it is text
// like any other. User-defined tokens are found in both cases. Where special tokens overlap, the first wins, and of
// those at one place the longest. What it encodes is Normalize(text).
func (t *Tokenizer) Encode(text string, special bool) []int32 {
	text = t.Normalize(text)
	ids := make([]int32, 0, len(text)/3+1)
	m := merger{t: t}
	for text != "" {
		start, end, id := t.specials.next(text, special)
		for rest := text[:start]; rest != ""; {
			n := t.split(rest)
			ids = m.word(ids, rest[:n])
			rest = rest[n:]
		}
		if end > start {
			ids = append(ids, id)
		}
		text = text[end:]
	}
	return ids
}

// New reads the vocabulary, the merges and the rules of a file and checks that they are complete. The tokenizer keeps
// nothing of f. Errors are gguf's: ErrFormat or ErrUnsupported.
func New(f *gguf.File) (*Tokenizer, error) {
	t := &Tokenizer{}
	for _, step := range []func(*gguf.File) error{t.readRules, t.readVocabulary, t.readMerges, t.readSpecials} {
		if err := step(f); err != nil {
			return nil, err
		}
	}
	return t, nil
}
