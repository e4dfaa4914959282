package chat

import (
	"fmt"
	"strings"
)

// maxDepth bounds brackets inside brackets and blocks inside blocks; the engine recurses once for each.
const maxDepth = 64

// guard refuses sources on which the engine could recurse without bound, which no recover can catch: deep nesting, and
// macros that may call themselves. A macro may use only macros that stand before it, and only to call them, so that
// none can be reached under another name; "call" blocks, which hand a macro around, are refused.
func guard(src string) error {
	g := guardian{defined: map[string]bool{}, later: map[string]bool{}}
	tags := tagsOf(src)
	for _, tag := range tags {
		if len(tag.words) > 1 && tag.words[0].text == "macro" {
			g.later[tag.words[1].text] = true
		}
	}
	for _, tag := range tags {
		if err := g.tag(tag); err != nil {
			return err
		}
	}
	return nil
}

type guardian struct {
	defined map[string]bool // macros that are complete
	later   map[string]bool // macros that are not
	current string          // the macro that is being read
	depth   int             // blocks that are open
}

func refuse(format string, args ...any) error {
	return &Error{ErrTemplate, fmt.Sprintf(format, args...)}
}

func (g *guardian) tag(t tag) error {
	if t.depth > maxDepth {
		return refuse("brackets nested deeper than %d", maxDepth)
	}
	words := t.words
	if len(words) > 0 && t.statement {
		switch w := words[0].text; {
		case w == "call":
			return refuse("call blocks are not supported")
		case w == "macro":
			if len(words) < 2 || g.current != "" || g.defined[words[1].text] {
				return refuse("a macro without a name, inside another, or twice")
			}
			g.current = words[1].text
			g.depth++
			words = words[2:]
		case w == "endmacro":
			g.defined[g.current] = true
			delete(g.later, g.current)
			g.current = ""
			g.depth--
		case w == "if" || w == "for":
			g.depth++
		case strings.HasPrefix(w, "end"):
			g.depth--
		}
	}
	if g.depth > maxDepth {
		return refuse("blocks nested deeper than %d", maxDepth)
	}
	return g.uses(words)
}

func (g *guardian) uses(words []word) error {
	for _, w := range words {
		switch {
		case g.current != "" && g.later[w.text]:
			return refuse("macro %.32q may recurse", w.text)
		case (g.defined[w.text] || g.later[w.text]) && !w.called:
			return refuse("macro %.32q is used without a call", w.text)
		}
	}
	return nil
}

// word is an identifier in a tag, and whether a "(" follows.
type word struct {
	text   string
	called bool
}

// tag is the inside of a {% %} or {{ }}.
type tag struct {
	statement bool
	words     []word
	depth     int // of brackets
}

// tagsOf finds the tags of a source. It need not be exact where the engine refuses the source anyway.
func tagsOf(src string) []tag {
	var tags []tag
	for {
		open := strings.IndexByte(src, '{')
		if open < 0 || open+1 >= len(src) {
			return tags
		}
		kind := src[open+1]
		src = src[open+1:]
		switch kind {
		case '#':
			_, src, _ = strings.Cut(src[1:], "#}")
		case '%', '{':
			t, n := readTag(src[1:], kind == '%')
			tags = append(tags, t)
			src = src[1+n:]
		}
	}
}

// readTag reads up to the end of the tag, in which a quote hides everything up to the next. It must find the end where
// the engine does: at the first closer of its kind outside of quotes, whatever the brackets.
func readTag(s string, statement bool) (t tag, n int) {
	depth, closer := 0, "}}"
	if statement {
		closer = "%}"
	}
	t.statement = statement
	for n < len(s) {
		switch c := s[n]; {
		case c == '\'' || c == '"':
			n += quoted(s[n:])
			continue
		case strings.HasPrefix(s[n:], closer):
			return t, n + 2
		case strings.IndexByte("([{", c) >= 0:
			depth++
			t.depth = max(t.depth, depth)
		case strings.IndexByte(")]}", c) >= 0:
			depth--
		case letter(c):
			from := n
			for n < len(s) && (letter(s[n]) || s[n] >= '0' && s[n] <= '9') {
				n++
			}
			called := strings.HasPrefix(strings.TrimLeft(s[n:], " \t\r\n"), "(")
			t.words = append(t.words, word{s[from:n], called})
			continue
		}
		n++
	}
	return t, n
}

func letter(c byte) bool { return c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z' || c >= 0x80 }

// quoted is the length of the string literal at the start of s.
func quoted(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case s[0]:
			return i + 1
		}
	}
	return len(s)
}
