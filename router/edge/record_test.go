package edge_test

import (
	"strings"
	"testing"

	"leasehold.dev/mesh/audit/audittest"
	"leasehold.dev/mesh/audit/event"
	"leasehold.dev/router/edge"
)

func TestEveryResponseIsOnRecordBeforeItsEnd(t *testing.T) {
	log := audittest.Open(t, "router", "r1")
	w := newWorld(t, func(s *edge.Service) { s.Audit, s.Runner.Audit = log.Log, log.Log })
	w.pair()
	post := func(body, key string) reply {
		r, _ := w.send("POST", "/v1/chat/completions", body, "Authorization: Bearer "+key, "Content-Type: application/json")
		return r
	}
	two := post(strings.Replace(hi, `"messages"`, `"n":2,"messages"`, 1), "ka")
	refused := post(strings.Replace(hi, name, "no-such-model", 1), "kb")
	nobody := post(hi, "kz")
	if two.StatusCode != 200 || refused.StatusCode != 404 || nobody.StatusCode != 401 {
		t.Fatalf("%d, %d, %d", two.StatusCode, refused.StatusCode, nobody.StatusCode)
	}
	kept := w.records.Last(2)
	events := log.Events()
	if got, want := audittest.Kinds(events), "admission admission response response"; got != want {
		t.Fatalf("records %q, want %q", got, want)
	}
	r := events[2].(event.Response)
	if r.Request != two.Header.Get("X-Request-Id") || r.Tenant != "acme" || r.Outcome != "ok" || r.Model != name || r.Endpoint != "chat.completions" || r.StartMS == 0 || len(r.Choices) != 2 {
		t.Errorf("response %+v", r)
	}
	for i, c := range r.Choices {
		want := kept[1].Choices[i]
		if c.Admission != want.AdmissionID || c.Pair() != "p/d" || !c.VerdictsEqual || c.PromptTokens == 0 || c.PromptTokens != want.PromptTokens ||
			c.CompletionTokens != 4 || c.Pages != want.PagesMoved || c.Root != want.Root || c.Root == "" || c.OutputDigest == "" || c.FinishReason != "stop" {
			t.Errorf("choice %+v, want %+v", c, want)
		}
	}
	if r := events[3].(event.Response); r.Request != refused.Header.Get("X-Request-Id") || r.Tenant != "bolt" || r.Outcome != "refused" || len(r.Choices) != 0 {
		t.Errorf("a refusal: %+v", r)
	}

	late := post(hi, "ka") // the log is closed: what cannot be put on record is not answered
	if late.StatusCode != 503 {
		t.Errorf("%d without a log to write, want 503", late.StatusCode)
	}
}
