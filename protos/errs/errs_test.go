package errs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// kinds and their codes are wire format: a change here is a change of the mesh.
var kinds = []struct {
	kind Kind
	name string
	code codes.Code
}{
	{Internal, "internal", codes.Internal},
	{Invalid, "invalid", codes.InvalidArgument},
	{Limit, "limit", codes.OutOfRange},
	{Denied, "denied", codes.PermissionDenied},
	{NotFound, "not_found", codes.NotFound},
	{Stale, "stale", codes.Aborted},
	{Exhausted, "exhausted", codes.ResourceExhausted},
	{Unavailable, "unavailable", codes.Unavailable},
	{Corrupt, "corrupt", codes.DataLoss},
}

func TestKinds(t *testing.T) {
	if len(kinds) != len(names) {
		t.Fatalf("%d kinds tested, %d named", len(kinds), len(names))
	}
	for _, k := range kinds {
		if k.kind.String() != k.name || k.kind.Code() != k.code || KindOfCode(k.code) != k.kind {
			t.Errorf("%v = %q, %v and back %v; want %q, %v", k.kind, k.kind.String(), k.kind.Code(), KindOfCode(k.code), k.name, k.code)
		}
	}
	var zero Kind
	if zero != Internal {
		t.Errorf("the zero kind is %v, want internal", zero)
	}
}

func TestForeignKindsAndCodesAreInternal(t *testing.T) {
	k := Kind(200)
	if k.Code() != codes.Internal || k.String() != "kind(200)" {
		t.Errorf("Kind(200) = %v, %v", k, k.Code())
	}
	if err := ToStatus(New(k, "secret text")); status.Code(err) != codes.Internal || strings.Contains(err.Error(), "secret") {
		t.Errorf("ToStatus of kind(200) = %v", err)
	}
	for _, c := range []codes.Code{codes.Unknown, codes.Unimplemented, codes.FailedPrecondition, codes.AlreadyExists, codes.Unauthenticated, 99} {
		if got := KindOfCode(c); got != Internal {
			t.Errorf("KindOfCode(%v) = %v, want internal", c, got)
		}
	}
}

func TestInnermostMarkWins(t *testing.T) {
	base := errors.New("disk is full")
	for _, tt := range []struct {
		name string
		err  error
		want Kind
	}{
		{"no mark", base, Internal},
		{"a mark", Mark(base, Exhausted), Exhausted},
		{"a mark below a wrap", fmt.Errorf("reserve: %w", Mark(base, Exhausted)), Exhausted},
		{"a mark above a mark", Mark(fmt.Errorf("reserve: %w", Mark(base, Exhausted)), Corrupt), Exhausted},
		{"New around a marked error", New(Corrupt, "verify: %w", Mark(base, Exhausted)), Exhausted},
		{"a mark in a join", errors.Join(base, New(Stale, "old epoch")), Stale},
		{"the first of two marks in a join", errors.Join(New(Denied, "no"), New(Stale, "old epoch")), Denied},
		{"a cancelled context", fmt.Errorf("pull: %w", context.Canceled), Unavailable},
		{"a deadline", context.DeadlineExceeded, Unavailable},
		{"a mark on a cancelled context", Mark(context.Canceled, Corrupt), Corrupt},
		{"no error", nil, Internal},
	} {
		if got := KindOf(tt.err); got != tt.want {
			t.Errorf("%s: KindOf(%v) = %v, want %v", tt.name, tt.err, got, tt.want)
		}
	}
}

func TestMarkKeepsTheError(t *testing.T) {
	base := errors.New("disk is full")
	err := Mark(base, Exhausted)
	if err.Error() != base.Error() || !errors.Is(err, base) {
		t.Errorf("Mark = %v, is the base: %v", err, errors.Is(err, base))
	}
	if Mark(nil, Corrupt) != nil {
		t.Error("Mark(nil) is an error")
	}
	if err := New(Limit, "%d pages asked, %w", 7, io.EOF); err.Error() != "7 pages asked, EOF" || !errors.Is(err, io.EOF) {
		t.Errorf("New = %v", err)
	}
}

func TestAcrossTheWire(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		code codes.Code
		text string // on the wire
		kind Kind   // at the client
		is   error  // at the client
	}{
		{"a limit", New(Limit, "2000 tokens, limit 1024"), codes.OutOfRange, "2000 tokens, limit 1024", Limit, nil},
		{"a wrapped mark keeps its whole text", fmt.Errorf("prefill: %w", New(Exhausted, "0 of 9 free")), codes.ResourceExhausted,
			"prefill: 0 of 9 free", Exhausted, nil},
		{"a bug keeps its text at home", errors.New("nil map at /srv/x"), codes.Internal, "internal error", Internal, nil},
		{"a marked bug too", New(Internal, "nil map at /srv/x"), codes.Internal, "internal error", Internal, nil},
		{"cancelled", fmt.Errorf("pull: %w", context.Canceled), codes.Canceled, "pull: context canceled", Unavailable, context.Canceled},
		{"too late", fmt.Errorf("pull: %w", context.DeadlineExceeded), codes.DeadlineExceeded, "pull: context deadline exceeded", Unavailable,
			context.DeadlineExceeded},
		{"a mark is more than the context below it", New(Corrupt, "cut: %w", context.Canceled), codes.DataLoss, "cut: context canceled", Corrupt, nil},
		{"a status that nobody has taken in is a bug", status.Error(codes.NotFound, "no lease"), codes.Internal, "internal error", Internal, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wire := ToStatus(tt.err)
			if st, _ := status.FromError(wire); st.Code() != tt.code || st.Message() != tt.text {
				t.Errorf("ToStatus(%v) = %v %q, want %v %q", tt.err, st.Code(), st.Message(), tt.code, tt.text)
			}
			back := FromStatus(wire)
			if KindOf(back) != tt.kind || tt.is != nil && !errors.Is(back, tt.is) || !strings.Contains(back.Error(), tt.text) {
				t.Errorf("FromStatus(%v) = %v (%v), want %v", wire, back, KindOf(back), tt.kind)
			}
			if again := ToStatus(back); status.Code(again) != tt.code {
				t.Errorf("one hop on: %v, want %v", again, tt.code)
			}
		})
	}
}

func TestEveryKindSurvivesAHop(t *testing.T) {
	for _, k := range kinds {
		back := FromStatus(ToStatus(New(k.kind, "why")))
		if KindOf(back) != k.kind {
			t.Errorf("%v came back as %v", k.kind, KindOf(back))
		}
	}
}

func TestWhatIsNoStatusPasses(t *testing.T) {
	for _, err := range []error{nil, io.EOF, New(Stale, "old"), errors.New("plain")} {
		if got := FromStatus(err); !errors.Is(got, err) {
			t.Errorf("FromStatus(%v) = %v", err, got)
		}
	}
	if got := ToStatus(nil); got != nil {
		t.Errorf("ToStatus(nil) = %v", got)
	}
	if got := FromStatus(status.Error(codes.Unimplemented, "no such method")); KindOf(got) != Internal {
		t.Errorf("FromStatus(Unimplemented) = %v (%v), want internal", got, KindOf(got))
	}
	wrapped := fmt.Errorf("reserve: %w", status.Error(codes.NotFound, "no lease"))
	if got := FromStatus(wrapped); KindOf(got) != NotFound || !strings.Contains(got.Error(), "reserve: ") {
		t.Errorf("FromStatus of a wrapped status = %v (%v)", got, KindOf(got))
	}
}
