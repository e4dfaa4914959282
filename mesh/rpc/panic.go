package rpc

import (
	"fmt"
	"runtime"
)

// typeOf names a panic's value without its text, but for the runtime's own errors, whose text has numbers only.
func typeOf(p any) string {
	if e, ok := p.(runtime.Error); ok {
		return fmt.Sprintf("%T: %v", e, e)
	}
	return fmt.Sprintf("%T", p)
}
