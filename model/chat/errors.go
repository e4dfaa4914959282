package chat

import "errors"

var (
	// ErrTemplate says that the template itself is wrong or not supported; nothing can be rendered with it.
	ErrTemplate = errors.New("chat template")
	// ErrInvalid says that this conversation cannot be rendered; the caller may fix it.
	ErrInvalid = errors.New("invalid conversation")
)

// Error is why a template or a conversation was refused. Its text has nothing of the conversation. It is ErrTemplate
// or ErrInvalid (errors.Is).
type Error struct {
	kind error
	text string
}

func (e *Error) Error() string { return e.kind.Error() + ": " + e.text }

// Unwrap gives the kind.
func (e *Error) Unwrap() error { return e.kind }
