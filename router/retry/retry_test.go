package retry_test

import (
	"context"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"leasehold.dev/protos/errs"
	"leasehold.dev/router/retry"
)

func TestOnlyALossMayBeTriedAgain(t *testing.T) {
	for _, c := range []struct {
		why  string
		err  error
		lost bool
	}{
		{"nothing failed", nil, false},
		{"a worker is away", errs.New(errs.Unavailable, "gone"), true},
		{"wrapped on the way up", fmt.Errorf("decode: %w", errs.New(errs.Unavailable, "gone")), true},
		{"time ran out", context.DeadlineExceeded, true},
		{"the tenant went away", context.Canceled, false},
		{"the tenant went away, wrapped", fmt.Errorf("decode: %w", context.Canceled), false},
		{"a check failed", errs.New(errs.Corrupt, "digest"), false},
		{"over a limit", errs.New(errs.Limit, "9 > 8"), false},
		{"a wrong request", errs.New(errs.Invalid, "no"), false},
		{"a full pool", errs.New(errs.Exhausted, "0 free"), false},
		{"an old view", errs.New(errs.Stale, "epoch 3"), false},
		{"a bug", errs.New(errs.Internal, "nil"), false},
		{"an unmarked error", fmt.Errorf("what"), false},
		{"no such lease", errs.New(errs.NotFound, "lease"), false},
		{"not allowed", errs.New(errs.Denied, "no"), false},
	} {
		if got := retry.Lost(c.err); got != c.lost {
			t.Errorf("%s: Lost(%v) = %v, want %v", c.why, c.err, got, c.lost)
		}
	}
}

func TestBudgetIsATenthOfTheRequests(t *testing.T) {
	b := retry.NewBudget(0.1, 3)
	for i := range 3 {
		if !b.Take() {
			t.Fatalf("retry %d of the burst was refused", i+1)
		}
	}
	if b.Take() {
		t.Fatal("a fourth retry without a request")
	}
	for range 9 {
		b.Request()
	}
	if b.Take() {
		t.Fatal("a retry after 9 requests")
	}
	b.Request()
	b.Request() // 1.1, as a tenth is not exact
	if !b.Take() || b.Take() {
		t.Fatal("want one retry after 11 requests")
	}
}

func TestRetriesNeverExceedBurstAndShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ratio, most := rapid.Float64Range(0, 1).Draw(t, "ratio"), rapid.Float64Range(0, 20).Draw(t, "most")
		b := retry.NewBudget(ratio, most)
		var requests, retries float64
		for range rapid.IntRange(0, 400).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "request") {
				b.Request()
				requests++
			} else if b.Take() {
				retries++
			}
			if retries > most+ratio*requests+1e-6 {
				t.Fatalf("%v retries after %v requests with ratio %v and burst %v", retries, requests, ratio, most)
			}
		}
	})
}
