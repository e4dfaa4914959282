package batch

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"leasehold.dev/protos/errs"
)

var rewrite = flag.Bool("rewrite", false, "write what the planner does now into testdata")

// TestPlans runs testdata/plans.txt: commands, and after "----" what the last one answered.
func TestPlans(t *testing.T) {
	const file = "testdata/plans.txt"
	src, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got := replay(t, string(src))
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff(string(src), got); d != "" {
		t.Errorf("plans differ (-file +planner):\n%s", d)
	}
}

// replay returns src with the answers that a planner gives.
func replay(t *testing.T, src string) string {
	t.Helper()
	var out strings.Builder
	var p *Planner
	answer := false
	for in := bufio.NewScanner(strings.NewReader(src)); in.Scan(); {
		line := in.Text()
		word, rest, _ := strings.Cut(line, " ")
		switch {
		case line == "----":
			answer = true
			continue
		case line == "" || word == "#":
			answer = false
			fmt.Fprintln(&out, line)
			continue
		case answer && !isCommand(word):
			continue // the old answer
		}
		answer = false
		fmt.Fprintln(&out, line)
		if word == "limits" {
			p = parseLimits(t, rest)
			continue
		}
		if said := command(t, p, word, rest); said != "" {
			fmt.Fprintf(&out, "----\n%s\n", said)
		}
	}
	return out.String()
}

func isCommand(word string) bool {
	return slices.Contains([]string{"limits", "admit", "start", "feed", "end", "expire", "plan", "load"}, word)
}

func parseLimits(t *testing.T, s string) *Planner {
	t.Helper()
	var l Limits
	scan(t, s, "step=%d chunk=%d seqs=%d queue=%d tokens=%d tenant=%d",
		&l.StepTokens, &l.Chunk, &l.Sequences, &l.QueueRequests, &l.QueueTokens, &l.TenantRequests)
	p, err := New(l)
	if err != nil {
		t.Fatalf("limits %s: %v", s, err)
	}
	return p
}

func command(t *testing.T, p *Planner, word, rest string) string {
	t.Helper()
	var id ID
	var err error
	switch word {
	case "admit":
		a := Arrival{}
		line, deadline, timed := strings.Cut(rest, " deadline=")
		scan(t, line, "%d %s %d", &a.ID, &a.Tenant, &a.Tokens)
		if timed {
			scan(t, deadline, "%d", &a.Deadline)
		}
		err = p.Admit(a)
	case "start":
		var pos, count uint32
		scan(t, rest, "%d %d %d", &id, &pos, &count)
		err = p.Start(id, pos, count)
	case "feed":
		scan(t, rest, "%d", &id)
		err = p.Feed(id)
	case "end":
		scan(t, rest, "%d", &id)
		p.End(id)
	case "expire":
		var now int64
		scan(t, rest, "%d", &now)
		return say(p.Expire(now), "none", func(id ID) string { return fmt.Sprint(id) }, " ")
	case "plan":
		return say(p.Plan(), "nothing", func(i Item) string {
			s := fmt.Sprintf("%d pos=%d count=%d", i.ID, i.Pos, i.Count)
			if i.Last {
				s += " last"
			}
			return s
		}, "\n")
	case "load":
		l := p.Load()
		return fmt.Sprintf("requests=%d tokens=%d running=%d", l.Requests, l.Tokens, l.Running)
	default:
		t.Fatalf("unknown command %q", word)
	}
	if err != nil {
		return fmt.Sprintf("%v: %v", errs.KindOf(err), err)
	}
	return ""
}

func say[T any](list []T, none string, one func(T) string, sep string) string {
	if len(list) == 0 {
		return none
	}
	words := make([]string, len(list))
	for i, x := range list {
		words[i] = one(x)
	}
	return strings.Join(words, sep)
}

func scan(t *testing.T, s, format string, into ...any) {
	t.Helper()
	if _, err := fmt.Sscanf(s, format, into...); err != nil {
		t.Fatalf("%q is not %q: %v", s, format, err)
	}
}
