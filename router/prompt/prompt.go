package prompt

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"leasehold.dev/model/chat"
	"leasehold.dev/protos/errs"
	"leasehold.dev/router/apierr"
)

// Tokenizer is the part of model/tokenizer that is used here.
type Tokenizer interface {
	Encode(text string, special bool) []int32
	Piece(id int32) []byte
	IsControl(id int32) bool
	Vocab() int
	BOS() (id int32, add bool)
}

// Template is the part of model/chat that is used here.
type Template interface {
	Render(messages []chat.Message, addGenerationPrompt bool) (string, error)
}

// Encoder is safe for concurrent use when its tokenizer and template are.
type Encoder struct {
	tok     Tokenizer
	tmpl    Template
	control [256][]control // by first byte, longest first
}

type control struct {
	text string
	id   int32
}

// New lists tok's control tokens. tmpl may be nil: the model then serves no chat.
func New(tok Tokenizer, tmpl Template) *Encoder {
	e := &Encoder{tok: tok, tmpl: tmpl}
	for id := range int32(tok.Vocab()) {
		if s := string(tok.Piece(id)); tok.IsControl(id) && s != "" {
			e.control[s[0]] = append(e.control[s[0]], control{s, id})
		}
	}
	for _, of := range e.control {
		slices.SortStableFunc(of, func(a, b control) int { return len(b.text) - len(a.text) })
	}
	return e
}

// Text encodes a plain prompt. No control token comes out, but the one that the file wants before every prompt.
func (e *Encoder) Text(s string) []int32 { return e.begin(e.tok.Encode(s, false)) }

func (e *Encoder) begin(ids []int32) []int32 {
	if bos, add := e.tok.BOS(); add && (len(ids) == 0 || ids[0] != bos) {
		return slices.Insert(ids, 0, bos)
	}
	return ids
}

// Chat renders messages, with the head of the assistant's turn, and encodes the result.
func (e *Encoder) Chat(messages []chat.Message) ([]int32, error) {
	if e.tmpl == nil {
		return nil, apierr.Invalid("model", "The model has no chat template: use /v1/completions.")
	}
	plain, err := e.tmpl.Render(messages, true)
	if errors.Is(err, chat.ErrInvalid) {
		return nil, apierr.Invalid("messages", "The model's chat template does not take these messages: %v.", err)
	}
	if err != nil {
		return nil, errs.New(errs.Internal, "render chat template of %d messages: %w", len(messages), err)
	}
	marked := make([]chat.Message, len(messages))
	for i, m := range messages {
		marked[i] = chat.Message{Role: m.Role, Content: mark(i)}
	}
	skeleton, err := e.tmpl.Render(marked, true)
	if err != nil {
		return e.opaque(plain, messages)
	}
	parts := split(skeleton, messages)
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.text)
	}
	if b.String() != plain {
		return e.opaque(plain, messages)
	}
	return e.encode(parts), nil
}

// encode joins neighbouring plain text before it is encoded, as the tokenizer's own merges may cross from the
// template's text into the message's.
func (e *Encoder) encode(parts []part) []int32 {
	var ids []int32
	var run strings.Builder
	flush := func() {
		if run.Len() > 0 {
			ids = append(ids, e.tok.Encode(run.String(), false)...)
			run.Reset()
		}
	}
	for _, p := range parts {
		if p.tenant {
			run.WriteString(p.text)
			continue
		}
		for s := p.text; s != ""; {
			at, c := e.next(s)
			run.WriteString(s[:at])
			if c == nil {
				break
			}
			flush()
			ids = append(ids, c.id)
			s = s[at+len(c.text):]
		}
	}
	flush()
	return e.begin(ids)
}

// next is the first control token of s, the longest one at its place; len(s) and nil when there is none.
func (e *Encoder) next(s string) (int, *control) {
	for i := range len(s) {
		of := e.control[s[i]]
		for j := range of {
			if strings.HasPrefix(s[i:], of[j].text) {
				return i, &of[j]
			}
		}
	}
	return len(s), nil
}

// opaque serves a template that changes its messages' text, so that the two cannot be told apart in the result. A
// message that spells a control token is then refused; so are messages of which the template would put one together:
// the rendering must have the control tokens, in their order, that it has for the same conversation with harmless text.
func (e *Encoder) opaque(rendered string, messages []chat.Message) ([]int32, error) {
	harmless := make([]chat.Message, len(messages))
	for i, m := range messages {
		if _, c := e.next(m.Content); c != nil {
			param := "messages[" + strconv.Itoa(i) + "].content"
			return nil, apierr.Invalid(param, "'%s' spells a control token of the model, which this model's chat template cannot carry as text.", param)
		}
		harmless[i] = m
		if strings.TrimSpace(m.Content) != "" { // templates may leave out an empty turn
			harmless[i].Content = "x"
		}
	}
	want, err := e.tmpl.Render(harmless, true)
	if err != nil || !slices.Equal(e.controls(rendered), e.controls(want)) {
		return nil, apierr.Invalid("messages", "The model's chat template would make a control token of the text of these messages.")
	}
	return e.encode([]part{{text: rendered}}), nil
}

// controls are the control tokens that s spells.
func (e *Encoder) controls(s string) []int32 {
	var ids []int32
	for {
		at, c := e.next(s)
		if c == nil {
			return ids
		}
		ids = append(ids, c.id)
		s = s[at+len(c.text):]
	}
}

// part is a piece of the rendering: the template's own, or a message's.
type part struct {
	text   string
	tenant bool
}

const markOpen, markClose = "\U000F0000\U000F4C48", "\U000F0001"

func mark(i int) string { return markOpen + strconv.Itoa(i) + markClose }

// split cuts the rendering of marks and puts the messages in their place.
func split(skeleton string, messages []chat.Message) []part {
	var parts []part
	for {
		before, rest, ok := strings.Cut(skeleton, markOpen)
		if before != "" {
			parts = append(parts, part{text: before})
		}
		if !ok {
			return parts
		}
		num, after, ok := strings.Cut(rest, markClose)
		i, err := strconv.Atoi(num)
		if !ok || err != nil || i < 0 || i >= len(messages) {
			return nil
		}
		parts = append(parts, part{text: messages[i].Content, tenant: true})
		skeleton = after
	}
}
