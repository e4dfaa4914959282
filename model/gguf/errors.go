package gguf

import (
	"errors"
	"fmt"
)

var (
	// ErrFormat says that the file breaks the format; it is damaged, cut short or hostile.
	ErrFormat = errors.New("gguf: bad file")
	// ErrUnsupported says that the file asks for something that this reader does not know.
	ErrUnsupported = errors.New("gguf: unsupported")
)

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrFormat, fmt.Sprintf(format, args...))
}

func unsupported(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrUnsupported, fmt.Sprintf(format, args...))
}
