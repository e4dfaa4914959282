package probe_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"leasehold.dev/cli/probe"
	"leasehold.dev/model/canary"
	"leasehold.dev/protos/errs"
)

func TestAGateAsksOnBothSidesOfTheLimit(t *testing.T) {
	checks, err := probe.Gate(1000)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range checks {
		got = append(got, c.Name+" "+string(c.Want))
		if total := c.Tokens + canary.Answer; total > 1000 != (c.Want == probe.Limit) {
			t.Errorf("%s: prompt and answer have %d tokens, want %s", c.Name, total, c.Want)
		}
	}
	if want := []string{"0.5x echo", "limit-1 echo", "limit echo", "limit+1 refused"}; !slices.Equal(got, want) {
		t.Errorf("a gate asks %q, want %q", got, want)
	}
	if n := checks[0].Tokens + canary.Answer; n != 500 {
		t.Errorf("half of 1000 is %d", n)
	}
}

func TestRestAsksForAnEchoAndARefusal(t *testing.T) {
	for _, c := range []struct{ limit, tokens, echo int }{{1000, 640, 640}, {500, 640, 500 - canary.Answer}} {
		checks, err := probe.Rest(c.limit, c.tokens)
		if err != nil || len(checks) != 2 || checks[0].Tokens != c.echo || checks[0].Want != probe.Echo ||
			checks[1].Want != probe.Limit || checks[1].Tokens+canary.Answer != c.limit+1 {
			t.Errorf("Rest(%d, %d) = %+v, %v", c.limit, c.tokens, checks, err)
		}
	}
}

func TestTooSmall(t *testing.T) {
	if _, err := probe.Gate(probe.Least - 1); errs.KindOf(err) != errs.Invalid {
		t.Errorf("Gate below its least limit: %v", err)
	}
	if _, err := probe.Gate(probe.Least); err != nil {
		t.Errorf("Gate at its least limit: %v", err)
	}
	for _, c := range [][2]int{{probe.Least - 1, 640}, {1000, canary.MinPrompt - 1}} {
		if _, err := probe.Rest(c[0], c[1]); errs.KindOf(err) != errs.Invalid {
			t.Errorf("Rest(%d, %d): %v", c[0], c[1], err)
		}
	}
}

// answers of a router, as they must be.
func right(e canary.Echo) probe.Answer {
	return probe.Answer{Status: 200, Text: canary.Text(e.Want), Prompt: len(e.Tokens), Completion: canary.Answer, Pair: "p/d", Route: "split:grpc"}
}

func TestJudge(t *testing.T) {
	const n = 200
	e, err := canary.New(1, n, 3)
	if err != nil {
		t.Fatal(err)
	}
	other, err := canary.New(2, n, 3)
	if err != nil {
		t.Fatal(err)
	}
	tooLong := probe.Answer{Status: 400, Code: "context_length_exceeded", Message: "the prompt has 200 tokens; at most 100"}
	echo, over, gone := probe.Check{Name: "echo", Tokens: n, Want: probe.Echo}, probe.Check{Name: "over", Tokens: n, Want: probe.Limit}, probe.Gone()
	with := func(a probe.Answer, f func(*probe.Answer)) probe.Answer { f(&a); return a }
	for _, c := range []struct {
		name     string
		check    probe.Check
		a        probe.Answer
		ok, told bool
		got      string
	}{
		{"the echo", echo, right(e), true, true, "echo"},
		{"another tenant's text", echo, with(right(e), func(a *probe.Answer) { a.Text = canary.Text(other.Want) }), false, true, "24 foreign"},
		{"no text", echo, with(right(e), func(a *probe.Answer) { a.Text = "" }), false, true, "24 missing"},
		{"the end is cut off", echo, with(right(e), func(a *probe.Answer) { a.Text = a.Text[:48] }), false, true, "end WRONG"},
		{"another pair", echo, with(right(e), func(a *probe.Answer) { a.Pair = "p2/d" }), false, true, `through pair "p2/d"`},
		{"no pair said", echo, with(right(e), func(a *probe.Answer) { a.Pair = "" }), false, true, "through pair"},
		{"not split", echo, with(right(e), func(a *probe.Answer) { a.Route = "unsplit:short" }), false, true, "by route"},
		{"a shorter prompt was counted", echo, with(right(e), func(a *probe.Answer) { a.Prompt = 1 }), false, true, "usage 1"},
		{"refused, though it fits", echo, tooLong, false, false, "400 context_length_exceeded"},
		{"an echo in time of trouble", echo, probe.Answer{Status: 503, Code: "service_unavailable"}, false, false, "503"},
		{"nobody answers", echo, probe.Answer{Err: errors.New("connection refused")}, false, false, "no answer"},
		{"refused, as it must be", over, tooLong, true, true, "400"},
		{"refused without numbers", over, with(tooLong, func(a *probe.Answer) { a.Message = "too long" }), false, true, "without the numbers"},
		{"refused for another reason", over, probe.Answer{Status: 400, Code: "invalid_value", Message: "200"}, false, true, "400 invalid_value"},
		{"served over the limit", over, right(e), false, true, "SERVED"},
		{"too busy to refuse", over, probe.Answer{Status: 429, Code: "rate_limit_exceeded"}, false, false, "429"},
		{"broken instead of refused", over, probe.Answer{Status: 500}, false, false, "500"},
		{"a pair that is gone", gone, probe.Answer{Status: 503, Code: "service_unavailable"}, true, true, "503"},
		{"a pair that is gone serves", gone, right(e), false, true, "SERVED"},
		{"a key that may not steer", gone, probe.Answer{Status: 403, Code: "not_allowed"}, false, true, "403"},
	} {
		r := probe.Judge(c.check, e, "p/d", c.a)
		if r.OK != c.ok || r.Told != c.told || !strings.Contains(r.Got, c.got) {
			t.Errorf("%s: OK %v, told %v, got %q; want %v, %v, %q", c.name, r.OK, r.Told, r.Got, c.ok, c.told, c.got)
		}
	}
	alone := with(right(e), func(a *probe.Answer) { a.Pair, a.Route = "/d", "unsplit:no-prefill" })
	if r := probe.Judge(echo, e, "/d", alone); !r.OK {
		t.Errorf("decode alone: %+v", r)
	}
	alone.Route = "split:grpc"
	if r := probe.Judge(echo, e, "/d", alone); r.OK {
		t.Error("decode alone was split, and that is right")
	}
}

// script is a mesh that echoes below its limit; what it does wrong is up to the test.
func script(limit int, wrong func(e canary.Echo, a *probe.Answer)) func(context.Context, canary.Echo, string) probe.Answer {
	return func(_ context.Context, e canary.Echo, pair string) probe.Answer {
		a := right(e)
		a.Pair, a.Took = pair, time.Second
		if len(e.Tokens)+canary.Answer > limit {
			a = probe.Answer{Status: 400, Code: "context_length_exceeded", Message: "it has " + strconv.Itoa(len(e.Tokens))}
		}
		if wrong != nil {
			wrong(e, &a)
		}
		return a
	}
}

func TestRounds(t *testing.T) {
	checks, err := probe.Gate(1000)
	if err != nil {
		t.Fatal(err)
	}
	var ranges []int
	r := &probe.Rounds{Range: 14, Ask: script(1000, func(e canary.Echo, _ *probe.Answer) { ranges = append(ranges, e.Tenant) })}
	rows, err := r.Run(t.Context(), "p/d", checks)
	if err != nil || probe.Failed(rows) != 0 || len(rows) != 4 {
		t.Fatalf("%d rows, %d failed: %v", len(rows), probe.Failed(rows), err)
	}
	if want := []int{14, 15, 0, 1}; !slices.Equal(ranges, want) {
		t.Errorf("the prompts are in ranges %v, want %v", ranges, want)
	}
	// the incident: what is over the limit is served quickly, with the words of whoever was there before
	low := &probe.Rounds{Ask: script(1<<20, func(e canary.Echo, a *probe.Answer) {
		if len(e.Tokens)+canary.Answer > 700 {
			before, _ := canary.New((e.Tenant+5)%canary.Tenants, 100, 1)
			a.Text = canary.Text(before.Want)
		}
	})}
	rows, err = low.Run(t.Context(), "p/d", checks)
	if err != nil || probe.Failed(rows) != 3 || rows[0].Verdict.Leaked() != 0 || rows[3].Verdict.Leaked() != canary.Answer {
		t.Errorf("the incident: %d rows failed, %d and %d tokens are foreign: %v", probe.Failed(rows), rows[0].Verdict.Leaked(), rows[3].Verdict.Leaked(), err)
	}
	var out bytes.Buffer
	if err := probe.Print(&out, rows); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 5 || !strings.Contains(lines[3], "24 of tenant 7") || !strings.Contains(lines[4], "SERVED") || strings.Contains(lines[1], "FAILED") {
		t.Errorf("the table is\n%s", out.String())
	}
	if strings.Contains(out.String(), canary.Piece(40)) {
		t.Error("the table has words of an answer")
	}
}

func TestARoundEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r := &probe.Rounds{Ask: func(context.Context, canary.Echo, string) probe.Answer {
		cancel()
		return probe.Answer{Err: context.Canceled}
	}}
	checks, _ := probe.Gate(1000)
	if rows, err := r.Run(ctx, "p/d", checks); len(rows) != 1 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d rows, %v", len(rows), err)
	}
}
