// Package errs is the mesh's error taxonomy and its one mapping to gRPC codes.
//
// Inside a service, errors are plain Go errors. At the RPC edge one interceptor calls [ToStatus], and the client edge
// has its mirror, [FromStatus]. Nothing else mentions codes, but the router's map to OpenAI's error shape.
package errs

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Kind says what the caller should do, not what went wrong.
type Kind uint8

// The kinds. The zero value is Internal, so an unmarked error is a bug.
const (
	Internal    Kind = iota // a bug: page someone; do not retry
	Invalid                 // the request is wrong: fix it
	Limit                   // the request is over a limit; the text has both numbers
	Denied                  // not allowed for this identity
	NotFound                // no such lease, admission, page or model
	Stale                   // your view is old (instance, epoch): attach or fetch again
	Exhausted               // no room now: back off, or pick another node
	Unavailable             // this node, or one that it needs, is going or gone: pick another
	Corrupt                 // a check failed: never retried, never answered
)

var names = [...]string{"internal", "invalid", "limit", "denied", "not_found", "stale", "exhausted", "unavailable", "corrupt"}

// String is the kind's name in metrics and logs.
func (k Kind) String() string {
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

var wire = [...]codes.Code{
	Internal:    codes.Internal,
	Invalid:     codes.InvalidArgument,
	Limit:       codes.OutOfRange,
	Denied:      codes.PermissionDenied,
	NotFound:    codes.NotFound,
	Stale:       codes.Aborted,
	Exhausted:   codes.ResourceExhausted,
	Unavailable: codes.Unavailable,
	Corrupt:     codes.DataLoss,
}

// Code is k's gRPC code; a kind that is none of ours is Internal.
func (k Kind) Code() codes.Code {
	if int(k) < len(wire) {
		return wire[k]
	}
	return codes.Internal
}

// KindOfCode is the inverse of [Kind.Code]; codes of no kind are Internal.
func KindOfCode(c codes.Code) Kind {
	for k, w := range wire {
		if w == c {
			return Kind(k)
		}
	}
	return Internal
}

type kinded struct {
	kind Kind
	err  error
}

func (e *kinded) Error() string { return e.err.Error() }
func (e *kinded) Unwrap() error { return e.err }

// Mark gives err a kind. The innermost mark wins: the code that knows most names the kind, and wrapping on the way up
// cannot change it.
func Mark(err error, k Kind) error {
	var in *kinded
	if err == nil || errors.As(err, &in) {
		return err
	}
	return &kinded{k, err}
}

// New is a marked error with a formatted text.
func New(k Kind, format string, args ...any) error {
	return Mark(fmt.Errorf(format, args...), k)
}

// KindOf returns err's kind. Context ends are Unavailable; any other unmarked error is a bug.
func KindOf(err error) Kind {
	if in := (*kinded)(nil); errors.As(err, &in) {
		return in.kind
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return Unavailable
	}
	return Internal
}

// ToStatus maps err to a gRPC status. Text of an Internal error stays inside the process.
func ToStatus(err error) error {
	if err == nil {
		return nil
	}
	if in := (*kinded)(nil); !errors.As(err, &in) {
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return status.FromContextError(err).Err()
		}
	}
	if c := KindOf(err).Code(); c != codes.Internal {
		return status.Error(c, err.Error())
	}
	return status.Error(codes.Internal, "internal error")
}

// FromStatus is the client's mirror: a status becomes a marked error. Errors that are no status pass unchanged.
func FromStatus(err error) error {
	st, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	switch st.Code() {
	case codes.OK:
		return nil
	case codes.Canceled:
		return fmt.Errorf("%s: %w", st.Message(), context.Canceled)
	case codes.DeadlineExceeded:
		return fmt.Errorf("%s: %w", st.Message(), context.DeadlineExceeded)
	}
	return Mark(errors.New(st.Message()), KindOfCode(st.Code()))
}
