package audittest_test

import (
	"testing"

	"leasehold.dev/mesh/audit/audittest"
	"leasehold.dev/mesh/audit/event"
)

func TestEventsAreThoseThatWereAppended(t *testing.T) {
	l := audittest.Open(t, "router", "r1")
	l.Append(event.Retry{Request: "a", Result: "taken"})
	l.Append(event.Disagreement{Request: "a", Field: "rows"})
	got := l.Events()
	if len(got) != 2 || got[0] != (event.Retry{Request: "a", Result: "taken"}) || got[1] != (event.Disagreement{Request: "a", Field: "rows"}) {
		t.Errorf("%+v", got)
	}
	if k := audittest.Kinds(got); k != "retry disagreement" {
		t.Errorf("kinds %q", k)
	}
}
