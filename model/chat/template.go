package chat

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ardanlabs/jinja"
)

// Limits of Render, and of a template's source in Parse.
const (
	MaxSource   = 64 << 10 // bytes of a template
	MaxText     = 32 << 20 // bytes of all roles and contents together, and of the result
	MaxMessages = 1 << 16
	maxRange    = 1 << 16 // items of all range() calls of one Render
)

// Message is one turn of a conversation.
type Message struct{ Role, Content string }

// Template is a compiled chat template. It does not change, and may be used by many goroutines.
type Template struct {
	compiled *jinja.Template
	source   string
	bos, eos string
}

// Parse compiles a template. Errors are ErrTemplate.
func Parse(src string) (t *Template, err error) {
	defer func() {
		if recover() != nil {
			t, err = nil, &Error{ErrTemplate, "the parser gave up"}
		}
	}()
	if len(src) > MaxSource {
		return nil, &Error{ErrTemplate, fmt.Sprintf("%d bytes; at most %d allowed", len(src), MaxSource)}
	}
	if err := guard(src); err != nil {
		return nil, err
	}
	compiled, err := jinja.Compile(src)
	if err != nil {
		return nil, &Error{ErrTemplate, err.Error()}
	}
	return &Template{compiled: compiled, source: src}, nil
}

// WithTokens is the template with bos_token and eos_token set; they are "" otherwise.
func (t *Template) WithTokens(bos, eos string) *Template {
	c := *t
	c.bos, c.eos = bos, eos
	return &c
}

// Render writes a conversation as one prompt. Errors are ErrInvalid: the template raised an exception, failed on these
// messages, or a limit was passed.
func (t *Template) Render(messages []Message, addGenerationPrompt bool) (prompt string, err error) {
	if err := checkSize(messages); err != nil {
		return "", err
	}
	defer func() {
		if recover() != nil {
			prompt, err = "", &Error{ErrInvalid, "the template failed on it"}
		}
	}()
	prompt, err = t.compiled.RenderValues(t.values(messages, addGenerationPrompt))
	if raised := (*exception)(nil); errors.As(err, &raised) {
		return "", &Error{ErrInvalid, t.reason(raised)}
	}
	if err != nil {
		return "", &Error{ErrInvalid, "the template failed on it"}
	}
	if len(prompt) > MaxText {
		return "", &Error{ErrInvalid, fmt.Sprintf("it renders to %d bytes; at most %d allowed", len(prompt), MaxText)}
	}
	return prompt, nil
}

func checkSize(messages []Message) error {
	if len(messages) > MaxMessages {
		return &Error{ErrInvalid, fmt.Sprintf("%d messages; at most %d allowed", len(messages), MaxMessages)}
	}
	n := 0
	for _, m := range messages {
		n += len(m.Role) + len(m.Content)
	}
	if n > MaxText {
		return &Error{ErrInvalid, fmt.Sprintf("%d bytes; at most %d allowed", n, MaxText)}
	}
	return nil
}

// reason is the text of an exception if the template has it word for word: then nothing of the conversation is in it.
func (t *Template) reason(e *exception) string {
	if e.text != "" && strings.Contains(t.source, e.text) {
		return e.text
	}
	return "the template refused it"
}
