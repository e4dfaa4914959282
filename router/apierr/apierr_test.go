package apierr_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"leasehold.dev/protos/errs"
	"leasehold.dev/router/apierr"
)

const inside = "lease 9f at 10.0.0.7"

// The table that a tenant sees: which kind becomes which answer, and whether its text stays inside.
func TestKinds(t *testing.T) {
	for _, c := range []struct {
		err     error
		http    int
		grpc    codes.Code
		typ     string
		code    string
		retry   bool
		hidden  bool
		request bool // the message names the request
	}{
		{errs.New(errs.Internal, inside), 500, codes.Internal, apierr.TypeServer, "", false, true, true},
		{errors.New(inside), 500, codes.Internal, apierr.TypeServer, "", false, true, true},
		{errs.New(errs.Corrupt, inside), 500, codes.DataLoss, apierr.TypeServer, "", false, true, true},
		{errs.New(errs.Invalid, inside), 500, codes.Internal, apierr.TypeServer, "", false, true, true},  // a worker refused what we had checked
		{errs.New(errs.Denied, inside), 500, codes.Internal, apierr.TypeServer, "", false, true, true},   // a worker does not know us
		{errs.New(errs.NotFound, inside), 500, codes.Internal, apierr.TypeServer, "", false, true, true}, // a lease is gone
		{errs.New(errs.Stale, inside), 503, codes.Unavailable, apierr.TypeServer, "service_unavailable", true, true, true},
		{errs.New(errs.Unavailable, inside), 503, codes.Unavailable, apierr.TypeServer, "service_unavailable", true, true, true},
		{fmt.Errorf("decode: %w", errs.New(errs.Unavailable, inside)), 503, codes.Unavailable, apierr.TypeServer, "service_unavailable", true, true, true},
		{errs.New(errs.Exhausted, inside), 429, codes.ResourceExhausted, apierr.TypeRateLimit, "rate_limit_exceeded", true, true, false},
		{errs.New(errs.Limit, "2000 > 900"), 400, codes.OutOfRange, apierr.TypeInvalid, "context_length_exceeded", false, false, false},
		{context.Canceled, 499, codes.Canceled, apierr.TypeServer, "request_cancelled", false, true, false},
		{context.DeadlineExceeded, 504, codes.DeadlineExceeded, apierr.TypeServer, "timeout", false, true, true},
		{status.Error(codes.Canceled, inside), 499, codes.Canceled, apierr.TypeServer, "request_cancelled", false, true, false},
		{status.Error(codes.Unavailable, inside), 503, codes.Unavailable, apierr.TypeServer, "service_unavailable", true, true, true},
		{status.Error(codes.DataLoss, inside), 500, codes.DataLoss, apierr.TypeServer, "", false, true, true},
	} {
		e := apierr.From(c.err, "req-1")
		if e.HTTP != c.http || e.GRPC != c.grpc || e.Type != c.typ || e.Code != c.code || e.RetryAfter > 0 != c.retry {
			t.Errorf("From(%v) = %d %v %q %q retry %d, want %d %v %q %q %v", c.err, e.HTTP, e.GRPC, e.Type, e.Code, e.RetryAfter, c.http, c.grpc, c.typ, c.code, c.retry)
		}
		if c.hidden && strings.Contains(e.Message, "10.0.0.7") {
			t.Errorf("From(%v): the message %q shows what is inside", c.err, e.Message)
		}
		if strings.Contains(e.Message, "req-1") != c.request && c.http != 499 {
			t.Errorf("From(%v): message %q, want the request's id: %v", c.err, e.Message, c.request)
		}
		if !errors.Is(e, c.err) {
			t.Errorf("From(%v) has lost its cause", c.err)
		}
	}
	if apierr.From(nil, "") != nil {
		t.Error("From(nil) is an error")
	}
}

func TestAnErrorTravelsWhole(t *testing.T) {
	for _, e := range []*apierr.Error{
		apierr.Invalid("n", "n is %d", 9), apierr.Malformed("no"), apierr.Missing("model"), apierr.Unsupported("tools", ""), apierr.Unsupported("echo", "false"),
		apierr.Unknown("foo"), apierr.TooLarge(8), apierr.InvalidKey(), apierr.NoModel("gpt-9"), apierr.RateLimit(3, "slow"), apierr.ContextLength("messages", "9 > 8"),
	} {
		got := apierr.FromStatus(status.Convert(e))
		if *got != *e {
			t.Errorf("got  %+v\nwant %+v", *got, *e)
		}
		if same := apierr.From(fmt.Errorf("on the way: %w", e), "id"); same != e {
			t.Errorf("From changed %+v", e)
		}
	}
}

// What gRPC itself says has no details of ours.
func TestStatusesOfGRPC(t *testing.T) {
	for _, c := range []struct {
		code codes.Code
		http int
	}{{codes.Unimplemented, 404}, {codes.InvalidArgument, 400}, {codes.ResourceExhausted, 413}, {codes.Unavailable, 503}, {codes.Internal, 500}, {codes.Unknown, 500}} {
		e := apierr.FromStatus(status.New(c.code, inside))
		if e.HTTP != c.http {
			t.Errorf("%v: %d, want %d", c.code, e.HTTP, c.http)
		}
	}
}

func TestATenantsWordIsClipped(t *testing.T) {
	if m := apierr.NoModel(strings.Repeat("é", 1000)).Message; len(m) > 300 {
		t.Errorf("message of %d bytes", len(m))
	}
}
