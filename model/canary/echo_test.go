package canary_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"leasehold.dev/model/canary"
)

// follows is the model in three lines: the token that came after the last one, markers before fillers.
func follows(context []int32) int32 {
	last := context[len(context)-1]
	for i := len(context) - 1; i > 0; i-- {
		if owner, ok := canary.Owner(context[i]); context[i-1] == last && ok && int(context[i]-32)-30*owner < canary.Markers {
			return context[i]
		}
	}
	return canary.Unknown
}

func TestThePromptLeadsToItsAnswer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tenant := rapid.IntRange(0, canary.Tenants-1).Draw(t, "tenant")
		n := rapid.OneOf(rapid.IntRange(canary.MinPrompt, 200), rapid.IntRange(200, 5000)).Draw(t, "tokens")
		e, err := canary.New(tenant, n, rapid.Uint64().Draw(t, "seed"))
		if err != nil {
			t.Fatal(err)
		}
		if len(e.Tokens) != n || len(e.Want) != canary.Answer || e.Tokens[0] != canary.A || e.Tokens[n-1] != canary.A {
			t.Fatalf("%d tokens, %d wanted, from %d to %d", len(e.Tokens), len(e.Want), e.Tokens[0], e.Tokens[n-1])
		}
		for i, id := range e.Tokens[1 : n-1] {
			if owner, ok := canary.Owner(id); !ok || owner != tenant {
				t.Fatalf("token %d is %d, which is not tenant %d's", i+1, id, tenant)
			}
		}
		if distinct := slices.Compact(slices.Sorted(slices.Values(e.Want))); len(distinct) != canary.Answer {
			t.Fatalf("only %d markers are distinct", len(distinct))
		}
		context := slices.Clone(e.Tokens)
		for i, want := range e.Want {
			got := follows(context)
			if got != want {
				t.Fatalf("answer %d is %d, want %d", i, got, want)
			}
			context = append(context, got)
		}
		if v := canary.Judge(e, context[n:]); !v.Exact() {
			t.Fatal(v)
		}
	})
}

func TestTheMiddleIsOnAPageOfItsOwn(t *testing.T) {
	pages := map[int]int{}
	for seed := range uint64(2000) {
		e, err := canary.New(1, 1000, seed)
		if err != nil {
			t.Fatal(err)
		}
		pages[e.Middle/64]++
		if last := (e.Middle + 8) / 64; last >= 15 {
			t.Fatalf("seed %d: the middle ends on page %d, the prompt on 15", seed, last)
		}
	}
	for page := 1; page <= 14; page++ {
		if pages[page] < 50 {
			t.Errorf("of 2000 middles %d are on page %d", pages[page], page)
		}
	}
	if pages[0] != 0 {
		t.Errorf("%d middles are on the first page", pages[0])
	}
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []struct{ tenant, tokens int }{{-1, 100}, {canary.Tenants, 100}, {0, canary.MinPrompt - 1}, {0, -1}} {
		if _, err := canary.New(c.tenant, c.tokens, 1); err == nil {
			t.Errorf("New(%d, %d) gave a prompt", c.tenant, c.tokens)
		}
	}
}

func TestJudge(t *testing.T) {
	e, err := canary.New(3, 200, 5)
	if err != nil {
		t.Fatal(err)
	}
	other, err := canary.New(7, 200, 5)
	if err != nil {
		t.Fatal(err)
	}
	change := func(f func(got []int32) []int32) []int32 { return f(slices.Clone(e.Want)) }
	foreign := func(n int) (f [canary.Tenants]int) { f[7] = n; return f }
	for _, c := range []struct {
		name string
		got  []int32
		want canary.Verdict
	}{
		{"the right answer", e.Want, canary.Verdict{Front: true, Middle: true, End: true, Own: 24}},
		{"no answer", nil, canary.Verdict{Missing: 24}},
		{"another tenant's answer", other.Want, canary.Verdict{Foreign: foreign(24)}},
		{"the middle is another tenant's", slices.Concat(e.Want[:8], other.Want[8:16], e.Want[16:]),
			canary.Verdict{Front: true, End: true, Own: 16, Foreign: foreign(8)}},
		{"cut after the middle", e.Want[:16], canary.Verdict{Front: true, Middle: true, Own: 16, Missing: 8}},
		{"two tokens change places", change(func(g []int32) []int32 { g[0], g[1] = g[1], g[0]; return g }),
			canary.Verdict{Middle: true, End: true, Own: 22, Other: 2}},
		{"text that is no token", change(func(g []int32) []int32 { g[23] = canary.Unknown; return g }),
			canary.Verdict{Front: true, Middle: true, Own: 23, Other: 1}},
		{"a token too many", append(slices.Clone(e.Want), canary.A), canary.Verdict{Front: true, Middle: true, End: true, Own: 24, Other: 1}},
		{"another tenant's token at the end", append(slices.Clone(e.Want), other.Want[0]),
			canary.Verdict{Front: true, Middle: true, End: true, Own: 24, Foreign: foreign(1)}},
	} {
		got := canary.Judge(e, c.got)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
		if got.Exact() != (c.name == "the right answer") {
			t.Errorf("%s: Exact() = %v", c.name, got.Exact())
		}
		if strings.HasPrefix(got.String(), "exact") != got.Exact() {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	v := canary.Judge(e, other.Want)
	if v.Leaked() != 24 || fmt.Sprint(v.Of()) != "[7]" {
		t.Errorf("Leaked() = %d, Of() = %v, want 24 and [7]", v.Leaked(), v.Of())
	}
}
