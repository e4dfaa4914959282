package apierr

import (
	"context"
	"errors"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"leasehold.dev/protos/errs"
)

// StatusCancelled is the HTTP status of a request whose client went away; nobody reads it.
const StatusCancelled = 499

// Seconds that a tenant is asked to wait.
const (
	retryFull = 1
	retryDown = 2
)

// From maps any error to what the tenant is told. id names the request in texts that hide the cause.
func From(err error, id string) *Error {
	if err == nil {
		return nil
	}
	if e, ok := As(err); ok {
		return e
	}
	e := of(err)
	e.cause = err
	if id != "" && e.HTTP >= http.StatusInternalServerError {
		e.Message += " Request id: " + id + "."
	}
	return e
}

func of(err error) *Error {
	switch {
	case errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled:
		return &Error{HTTP: StatusCancelled, GRPC: codes.Canceled, Type: TypeServer, Code: CodeCancelled,
			Message: "The request was cancelled."}
	case errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded:
		return &Error{HTTP: http.StatusGatewayTimeout, GRPC: codes.DeadlineExceeded, Type: TypeServer, Code: CodeTimeout,
			Message: "The request took too long and was ended."}
	}
	switch kind(err) {
	case errs.Limit:
		return ContextLength("", "The request is over a worker's limit: %s.", err)
	case errs.Exhausted:
		return RateLimit(retryFull, "The server is at capacity: no room for this request now. Please retry after %d s.", retryFull)
	case errs.Unavailable, errs.Stale:
		return &Error{HTTP: http.StatusServiceUnavailable, GRPC: codes.Unavailable, Type: TypeServer,
			Code: CodeUnavailable, RetryAfter: retryDown, Message: "The service is temporarily unavailable."}
	case errs.Corrupt:
		return &Error{HTTP: http.StatusInternalServerError, GRPC: codes.DataLoss, Type: TypeServer,
			Message: "The server could not verify its own work on this request and ended it."}
	}
	return &Error{HTTP: http.StatusInternalServerError, GRPC: codes.Internal, Type: TypeServer,
		Message: "The server had an error while processing your request."}
}

// kind takes a status as well as a marked error.
func kind(err error) errs.Kind {
	if _, ok := status.FromError(err); ok {
		err = errs.FromStatus(err)
	}
	return errs.KindOf(err)
}
