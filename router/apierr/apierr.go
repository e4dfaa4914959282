package apierr

import (
	"errors"
	"fmt"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	openaiv1 "leasehold.dev/protos/gen/leasehold/openai/v1"
)

// OpenAI's types and the codes that we use.
const (
	TypeInvalid   = "invalid_request_error"
	TypeAuth      = "authentication_error"
	TypeRateLimit = "rate_limit_error"
	TypeServer    = "server_error"

	CodeInvalidKey      = "invalid_api_key"
	CodeNotAllowed      = "not_allowed"
	CodeModelNotFound   = "model_not_found"
	CodeReceiptNotFound = "receipt_not_found"
	CodeContextLength   = "context_length_exceeded"
	CodeRateLimit       = "rate_limit_exceeded"
	CodeUnsupported     = "unsupported_parameter"
	CodeUnknown         = "unknown_parameter"
	CodeInvalidValue    = "invalid_value"
	CodeMissing         = "missing_required_parameter"
	CodeTooLarge        = "request_too_large"
	CodeUnavailable     = "service_unavailable"
	CodeTimeout         = "timeout"
	CodeCancelled       = "request_cancelled"
)

// Error is what a tenant is told. Param and Code may be empty: null in JSON. It is immutable.
type Error struct {
	HTTP       int
	GRPC       codes.Code
	Message    string
	Type       string
	Param      string
	Code       string
	RetryAfter uint32 // seconds; 0: none
	cause      error
}

func (e *Error) Error() string { return e.Message }

// Unwrap is what happened inside; it is for logs only.
func (e *Error) Unwrap() error { return e.cause }

// Invalid is a wrong value of param.
func Invalid(param, format string, args ...any) *Error {
	return &Error{HTTP: http.StatusBadRequest, GRPC: codes.InvalidArgument, Type: TypeInvalid, Param: param,
		Code: CodeInvalidValue, Message: fmt.Sprintf(format, args...)}
}

// Malformed is a body that is no JSON object. No field can be named.
func Malformed(format string, args ...any) *Error {
	e := Invalid("", format, args...)
	e.Code = ""
	return e
}

// Missing is a required field that is absent.
func Missing(param string) *Error {
	e := Invalid(param, "Missing required parameter: '%s'.", param)
	e.Code = CodeMissing
	return e
}

// Unsupported is a field that OpenAI knows and that we do not serve yet. want may name what would be accepted.
func Unsupported(param, want string) *Error {
	e := Invalid(param, "Unsupported parameter: '%s' is not supported by this server.", param)
	if want != "" {
		e.Message = fmt.Sprintf("Unsupported value: '%s' must be %s on this server.", param, want)
	}
	e.Code = CodeUnsupported
	return e
}

// Unknown is a field that nobody knows.
func Unknown(param string) *Error {
	e := Invalid(param, "Unrecognized request argument supplied: '%s'.", param)
	e.Code = CodeUnknown
	return e
}

// TooLarge is a body of more than limit bytes.
func TooLarge(limit int64) *Error {
	return &Error{HTTP: http.StatusRequestEntityTooLarge, GRPC: codes.InvalidArgument, Type: TypeInvalid,
		Code: CodeTooLarge, Message: fmt.Sprintf("The request body is larger than %d bytes.", limit)}
}

// InvalidKey is a missing or unknown API key.
func InvalidKey() *Error {
	return &Error{HTTP: http.StatusUnauthorized, GRPC: codes.Unauthenticated, Type: TypeAuth, Code: CodeInvalidKey,
		Message: "Incorrect API key provided. Send it in the header 'Authorization: Bearer KEY'."}
}

// NotAllowed is what a key is known for, but not good for.
func NotAllowed(format string, args ...any) *Error {
	return &Error{HTTP: http.StatusForbidden, GRPC: codes.PermissionDenied, Type: TypeAuth, Code: CodeNotAllowed, Message: fmt.Sprintf(format, args...)}
}

// NoModel is a model that is not served here.
func NoModel(name string) *Error {
	return &Error{HTTP: http.StatusNotFound, GRPC: codes.NotFound, Type: TypeInvalid, Param: "model",
		Code: CodeModelNotFound, Message: fmt.Sprintf("The model '%s' does not exist or you do not have access to it.", clip(name))}
}

// NoReceipt is a receipt that there is not, or that is another tenant's.
func NoReceipt() *Error {
	return &Error{HTTP: http.StatusNotFound, GRPC: codes.NotFound, Type: TypeInvalid, Param: "id", Code: CodeReceiptNotFound,
		Message: "There is no such receipt."}
}

// NoRoute is a path that is not served.
func NoRoute(method, path string) *Error {
	return &Error{HTTP: http.StatusNotFound, GRPC: codes.Unimplemented, Type: TypeInvalid,
		Message: fmt.Sprintf("Unknown request URL: %s %s.", method, clip(path))}
}

// RateLimit is a full pool, queue or tenant quota.
func RateLimit(seconds uint32, format string, args ...any) *Error {
	return &Error{HTTP: http.StatusTooManyRequests, GRPC: codes.ResourceExhausted, Type: TypeRateLimit,
		Code: CodeRateLimit, RetryAfter: seconds, Message: fmt.Sprintf(format, args...)}
}

// ContextLength is a request that fits no ready pair of workers.
func ContextLength(param, format string, args ...any) *Error {
	return &Error{HTTP: http.StatusBadRequest, GRPC: codes.OutOfRange, Type: TypeInvalid, Param: param,
		Code: CodeContextLength, Message: fmt.Sprintf(format, args...)}
}

// clip bounds a tenant's own word where it comes back in a message.
func clip(s string) string {
	const most = 64
	r := []rune(s)
	if len(r) > most {
		return string(r[:most]) + "..."
	}
	return s
}

// Proto is e as it travels in the details of a status.
func (e *Error) Proto() *openaiv1.Error {
	p := &openaiv1.Error{Message: e.Message, Type: e.Type, HttpStatus: uint32(e.HTTP), RetryAfter: e.RetryAfter}
	if e.Param != "" {
		p.Param = proto.String(e.Param)
	}
	if e.Code != "" {
		p.Code = proto.String(e.Code)
	}
	return p
}

// GRPCStatus makes e a status, with [Error.Proto] in the details. Package status finds it by this method.
func (e *Error) GRPCStatus() *status.Status {
	st := status.New(e.GRPC, e.Message)
	if with, err := st.WithDetails(e.Proto()); err == nil {
		return with
	}
	return st
}

// FromStatus is the inverse of [Error.GRPCStatus]. A status without details came from gRPC itself: its text stays here.
func FromStatus(st *status.Status) *Error {
	for _, d := range st.Details() {
		if p, ok := d.(*openaiv1.Error); ok {
			return &Error{HTTP: int(p.HttpStatus), GRPC: st.Code(), Message: p.Message, Type: p.Type,
				Param: p.GetParam(), Code: p.GetCode(), RetryAfter: p.RetryAfter}
		}
	}
	switch st.Code() {
	case codes.Unimplemented:
		return &Error{HTTP: http.StatusNotFound, GRPC: st.Code(), Type: TypeInvalid, Message: "Unknown request URL."}
	case codes.InvalidArgument:
		return Malformed("The request body could not be parsed: %s.", clip(st.Message()))
	case codes.ResourceExhausted:
		return TooLarge(MaxBody)
	}
	return From(st.Err(), "")
}

// MaxBody is the largest request body in bytes.
const MaxBody = 8 << 20

// As finds an [Error] in err's chain.
func As(err error) (*Error, bool) {
	var e *Error
	ok := errors.As(err, &e)
	return e, ok
}
