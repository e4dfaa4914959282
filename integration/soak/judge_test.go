package soak

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"leasehold.dev/integration/scenario"
	"leasehold.dev/model/canary"
)

var (
	noon    = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	full    = "rate_limit_exceeded"
	down    = "service_unavailable"
	reset   = errors.New("connection reset")
	gone    = fmt.Errorf("reading: %w", context.Canceled)
	corrupt = &scenario.APIError{Status: 500, Message: "could not verify"}
)

func always(time.Time, time.Time) bool { return true }
func never(time.Time, time.Time) bool  { return false }

// Only what a tenant, a full pool or a kill explains is not wrong.
func TestJudge(t *testing.T) {
	right := scenario.Answer{Text: "the sea", Completed: true, Finish: "stop", Receipt: "a.b.c"}
	with := func(change func(*scenario.Answer)) scenario.Answer {
		a := right
		change(&a)
		return a
	}
	ended := func(e *scenario.APIError, text string) answer {
		return answer{Answer: scenario.Answer{Text: text, Err: e}}
	}
	for _, tt := range []struct {
		name string
		a    answer
		near near
		want outcome
	}{
		{"right", answer{Answer: right}, never, whole},
		{"another's", answer{Answer: with(func(a *scenario.Answer) { a.Text = "the hill" })}, always, wrong},
		{"short", answer{Answer: with(func(a *scenario.Answer) { a.Text = "the" })}, always, wrong},
		{"without a receipt", answer{Answer: with(func(a *scenario.Answer) { a.Receipt = "" })}, always, wrong},
		{"hung up after a part", answer{Answer: scenario.Answer{Text: "the"}, err: gone, hungUp: true}, never, cancelled},
		{"hung up after another's part", answer{Answer: scenario.Answer{Text: "a"}, err: gone, hungUp: true}, never, wrong},
		{"broken off before it could hang up", answer{err: reset, hungUp: true}, never, wrong},
		{"a guard spoke before it hung up", answer{Answer: scenario.Answer{Err: corrupt}, err: gone, hungUp: true}, never, wrong},
		{"broken off", answer{Answer: scenario.Answer{Text: "the"}, err: reset}, always, wrong},
		{"a silent end", answer{Answer: scenario.Answer{Text: "the"}}, always, wrong},
		{"full", ended(&scenario.APIError{Code: &full}, ""), never, refused},
		{"full in the middle", ended(&scenario.APIError{Code: &full}, "the"), always, wrong},
		{"down close to a kill", ended(&scenario.APIError{Code: &down}, "the"), always, lost},
		{"down for no reason", ended(&scenario.APIError{Code: &down}, ""), never, wrong},
		{"a guard spoke", ended(corrupt, ""), always, wrong},
	} {
		got, what := judge(tt.a, repeated("the sea"), tt.near)
		if got != tt.want || (what != "") != (got == wrong) {
			t.Errorf("%s: %v %q, want %v", tt.name, got, what, tt.want)
		}
	}
}

func TestEchoedCountsForeignMarkers(t *testing.T) {
	mine, err := canary.New(3, 200, 1)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := canary.New(4, 200, 1)
	if err != nil {
		t.Fatal(err)
	}
	foreign := 0
	right := echoed(mine, func(n int) { foreign += n })
	if err := errors.Join(right(canary.Text(mine.Want), true), right(canary.Text(mine.Want[:5]), false), right("", false)); err != nil || foreign != 0 {
		t.Errorf("its own: %v, %d foreign", err, foreign)
	}
	if err := right(canary.Text(mine.Want[:5]), true); err == nil {
		t.Error("five tokens pass for the whole answer")
	}
	if err := right(canary.Text(theirs.Want[:2]), false); err == nil || foreign != 2 {
		t.Errorf("another's two: %v, %d foreign", err, foreign)
	}
}

func TestKillsExplainOnlyTheirTime(t *testing.T) {
	var k kills
	k.begin(noon)
	k.end(noon.Add(time.Second))
	k.begin(noon.Add(time.Minute))
	at := func(from, to time.Duration) bool { return k.near(noon.Add(from), noon.Add(to)) }
	for _, tt := range []struct {
		from, to time.Duration
		want     bool
	}{
		{-time.Second, 0, false},
		{-time.Second, time.Millisecond, true},
		{time.Second, time.Second + calm/2, true},
		{time.Second + calm, 10 * time.Second, false},
		{0, time.Hour, true},
		{time.Hour, 2 * time.Hour, true}, // the second is not over
	} {
		if got := at(tt.from, tt.to); got != tt.want {
			t.Errorf("%v to %v is near a kill: %v, want %v", tt.from, tt.to, got, tt.want)
		}
	}
}
