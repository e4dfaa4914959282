package incident

import (
	"strings"
	"testing"

	"leasehold.dev/model/canary"
)

func TestARowIsWrongUnlessItIsAsExpected(t *testing.T) {
	e, err := canary.New(asker, 200, 1)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := canary.New(0, 200, 1)
	if err != nil {
		t.Fatal(err)
	}
	right, stale, none := canary.Judge(e, e.Want), canary.Judge(e, theirs.Want), canary.Judge(e, nil)
	for _, tt := range []struct {
		name, expected string
		status         int
		v              canary.Verdict
		message        string
		reserved       int
		wrong          bool
	}{
		{"served, and exact", echo, 200, right, "", 1, false},
		{"served with another's markers", echo, 200, stale, "", 1, true},
		{"refused, where an echo is due", echo, 400, none, "the prompt has 200 tokens", 0, true},
		{"refused with the number", refuse, 400, none, "the prompt has 200 tokens", 0, false},
		{"refused after pages were reserved", refuse, 400, none, "the prompt has 200 tokens", 1, true},
		{"refused without the number", refuse, 400, none, "too long", 0, true},
		{"served, where a refusal is due", refuse, 200, right, "", 1, true},
		{"busy, where a refusal is due", refuse, 503, none, "200", 0, true},
		{"the incident", foreign, 200, stale, "", 1, false},
		{"no incident", foreign, 200, right, "", 1, true},
		{"stopped, where the incident is due", foreign, 502, none, "", 1, true},
	} {
		r := Row{Length: 200, Expected: tt.expected, Status: tt.status}
		r.judge(tt.v, tt.message, tt.reserved)
		if (r.Wrong != "") != tt.wrong {
			t.Errorf("%s: wrong = %q", tt.name, r.Wrong)
		}
	}
}

func TestTheTableMarksWhatIsWrong(t *testing.T) {
	var b strings.Builder
	if err := table(&b, []Row{{Guards: "on", Length: 7, Expected: echo, Got: echo, Status: 200}, {Guards: "off", Wrong: "nobody spoke"}}); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(b.String(), "\n"); len(lines) != 4 || strings.Contains(lines[1], "NOT") || !strings.Contains(lines[2], "NOT AS IT MUST BE: nobody spoke") {
		t.Errorf("%s", b.String())
	}
}
