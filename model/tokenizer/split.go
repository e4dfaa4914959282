package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// splitter is the length of the first word of text, which is not empty. Words are never empty and together they are
// the text. A splitter is called again on what is left, and may look at all of it, but reads each byte only a few
// times in a whole text.
type splitter func(text string) int

// splitters are the pre-tokenizers by their names in GGUF. Each is a regular expression of the model's makers, written
// out by hand; the expressions are in the functions' comments.
var splitters = map[string]splitter{
	"smollm":           func(text string) int { return gpt2(text, true) },
	"gpt-2":            func(text string) int { return gpt2(text, false) },
	"gpt2":             func(text string) int { return gpt2(text, false) },
	"llama-bpe":        func(text string) int { return llama3(text, 3) },
	"llama3":           func(text string) int { return llama3(text, 3) },
	"llama-v3":         func(text string) int { return llama3(text, 3) },
	"qwen2":            func(text string) int { return llama3(text, 1) },
	"deepseek-r1-qwen": func(text string) int { return llama3(text, 1) },
}

// class is what the expressions know of a character.
type class uint8

const (
	end    class = iota // no character: the text is over
	letter              // \p{L}
	number              // \p{N}
	space               // \s, Unicode's White_Space
	other               // all else, broken UTF-8 included
)

var ascii = func() (t [utf8.RuneSelf]class) {
	for r := range t {
		t[r] = classify(rune(r))
	}
	return t
}()

func classify(r rune) class {
	switch {
	case unicode.IsLetter(r):
		return letter
	case unicode.IsNumber(r):
		return number
	case unicode.IsSpace(r):
		return space
	}
	return other
}

// classOf is the class and the length of the character at the start of text.
func classOf(text string) (class, int) {
	if text == "" {
		return end, 0
	}
	if text[0] < utf8.RuneSelf {
		return ascii[text[0]], 1
	}
	r, n := utf8.DecodeRuneInString(text)
	if r == utf8.RuneError && n == 1 {
		return other, 1
	}
	return classify(r), n
}

// run is the length of the characters of class c at the start of text.
func run(text string, c class) int {
	n := 0
	for {
		got, size := classOf(text[n:])
		if got != c || size == 0 {
			return n
		}
		n += size
	}
}

// gpt2 is 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+. With digits, as SmolLM has it,
// each \p{N} is cut out of the text first, so that it is a word of its own, and what is before it ends there.
func gpt2(text string, digits bool) int {
	first, size := classOf(text)
	if digits && first == number {
		return size
	}
	if n := contraction(text, false); n > 0 {
		return n
	}
	c, from := first, 0
	if text[0] == ' ' {
		c, _ = classOf(text[1:])
		from = 1
	}
	if c == letter || c == other || c == number && !digits {
		return from + run(text[from:], c)
	}
	all, last := spaces(text)
	if next, _ := classOf(text[all:]); next == end || digits && next == number || last == 0 {
		return all
	}
	return last
}

// llama3 is (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,most}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|
// \s+(?!\S)|\s+, in which Qwen2 differs by its number of digits only.
func llama3(text string, most int) int {
	if n := contraction(text, true); n > 0 {
		return n
	}
	first, size := classOf(text)
	switch {
	case first == letter:
		return run(text, letter)
	case first == number:
		return digitRun(text, most)
	case !newline(text[0]):
		if n := run(text[size:], letter); n > 0 {
			return size + n
		}
	}
	from := 0
	if text[0] == ' ' {
		from = 1
	}
	if n := run(text[from:], other); n > 0 {
		n += from
		for n < len(text) && newline(text[n]) {
			n++
		}
		return n
	}
	all, last := spaces(text)
	for n := all; n > 0; n-- {
		if newline(text[n-1]) {
			return n
		}
	}
	if all == len(text) || last == 0 {
		return all
	}
	return last
}

func newline(b byte) bool { return b == '\r' || b == '\n' }

// spaces is the length of the spaces at the start of text, and where the last of them begins.
func spaces(text string) (all, last int) {
	for {
		c, size := classOf(text[all:])
		if c != space {
			return all, last
		}
		last = all
		all += size
	}
}

func digitRun(text string, most int) int {
	n := 0
	for range most {
		c, size := classOf(text[n:])
		if c != number {
			break
		}
		n += size
	}
	return n
}

// contraction is the length of an English contraction's ending at the start of text, or 0.
func contraction(text string, anyCase bool) int {
	if len(text) < 2 || text[0] != '\'' {
		return 0
	}
	lower := func(i int) byte {
		if i >= len(text) {
			return 0
		}
		if b := text[i]; anyCase && b >= 'A' && b <= 'Z' {
			return b + 'a' - 'A'
		}
		return text[i]
	}
	switch b := lower(1); {
	case b == 's', b == 't', b == 'm', b == 'd':
		return 2
	case b == 'r' && lower(2) == 'e', b == 'v' && lower(2) == 'e', b == 'l' && lower(2) == 'l':
		return 3
	}
	return 0
}
