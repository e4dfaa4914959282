package record_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/router/record"
)

func TestTheLastThousandAreKeptNewestFirst(t *testing.T) {
	for _, n := range []int{0, 1, 7, record.Size - 1, record.Size, record.Size + 1, 3*record.Size + 5} {
		var g record.Ring
		for i := range n {
			g.Begin(&record.Request{ID: fmt.Sprint(i)})
		}
		got := g.Last(record.Size + 1)
		if len(got) != min(n, record.Size) {
			t.Fatalf("%d of %d are kept", len(got), n)
		}
		for i, r := range got {
			if want := fmt.Sprint(n - 1 - i); r.ID != want {
				t.Fatalf("of %d: place %d has %s, want %s", n, i, r.ID, want)
			}
		}
	}
}

func TestWhatComesOutIsACopy(t *testing.T) {
	var g record.Ring
	c := &record.Choice{Index: 0}
	e := g.Begin(&record.Request{ID: "a", Choices: []*record.Choice{c}})
	before := g.Last(1)[0]
	e.Update(func(r *record.Request) { r.Outcome = record.OK; c.Root = "ff" })
	if before.Outcome != "" || before.Choices[0].Root != "" {
		t.Error("a copy changed")
	}
	if now := g.Last(1)[0]; now.Outcome != record.OK || now.Choices[0].Root != "ff" || e.Copy().Choices[0].Root != "ff" {
		t.Error("the update is not in the ring")
	}
}

func TestUpdatesAndReadsAtOnce(t *testing.T) {
	var g record.Ring
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			e := g.Begin(&record.Request{ID: fmt.Sprint(i), Choices: []*record.Choice{{}}})
			for j := range 100 {
				e.Update(func(r *record.Request) { r.Choices[0].PagesMoved = uint32(j) })
				g.Last(8)
			}
		})
	}
	wg.Wait()
}

func TestServeHTTP(t *testing.T) {
	var g record.Ring
	for _, id := range []string{"a", "b", "c"} {
		g.Begin(&record.Request{ID: id})
	}
	for query, want := range map[string]string{"": "c b a", "?limit=2": "c b", "?limit=0": "", "?limit=x": "c b a", "?id=b": "b", "?id=z": ""} {
		w := httptest.NewRecorder()
		g.ServeHTTP(w, httptest.NewRequest("GET", "/debug/requests"+query, nil))
		var doc struct{ Requests []struct{ ID string } }
		if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil || doc.Requests == nil {
			t.Fatalf("%q: %v in %s", query, err, w.Body)
		}
		var ids []string
		for _, r := range doc.Requests {
			ids = append(ids, r.ID)
		}
		if got := strings.Join(ids, " "); got != want {
			t.Errorf("%q: %q, want %q", query, got, want)
		}
	}
}

func TestChoiceTakesBothHalvesCounts(t *testing.T) {
	var c record.Choice
	c.Verdicts(&meshv1.PrefillVerdict{Rows: 199, Pages: 4, Root: []byte{1}, ComputeUs: 1500},
		&meshv1.DecodeVerdict{Rows: 199, Pages: 4, ExpectedPages: 4, Root: []byte{2}, BytesMoved: 99, TransferUs: 2500, VerifyUs: 500})
	c.Finished(&decodev1.Finished{PromptTokens: 200, CompletionTokens: 7, GuardsOn: true, DecodeUs: 3500, OutputDigest: []byte{3}}, "stop")
	want := record.Choice{PrefillRows: 199, PrefillPages: 4, PrefillRoot: "01", ComputeMS: 1.5, DecodeRows: 199, PagesMoved: 4, ExpectedPages: 4, Root: "02",
		BytesMoved: 99, TransferMS: 2.5, VerifyMS: .5, PromptTokens: 200, CompletionTokens: 7, GuardsOn: true, DecodeMS: 3.5, OutputDigest: "03", FinishReason: "stop"}
	if c != want {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
	c.Verdicts(nil, nil) // neither half said anything
	if c.PagesMoved != 0 || c.Root != "" {
		t.Errorf("of nothing: %+v", c)
	}
}

func TestLogLevelIsTheOutcome(t *testing.T) {
	for outcome, level := range map[string]string{record.OK: "INFO", record.Cancelled: "INFO", record.Refused: "INFO", "corrupt": "WARN", "unavailable": "WARN"} {
		var b bytes.Buffer
		(&record.Request{ID: "a", Outcome: outcome, Choices: []*record.Choice{{Route: "split:grpc"}}}).Log(slog.New(slog.NewTextHandler(&b, nil)))
		if lines := strings.Split(strings.TrimSpace(b.String()), "\n"); len(lines) != 2 || !strings.Contains(lines[0], "level="+level) || !strings.Contains(lines[1], "route=split:grpc") {
			t.Errorf("%s: %q", outcome, b.String())
		}
	}
}

func TestAuditLeavesOutWhatWasNotVerified(t *testing.T) {
	r := record.Request{ID: "a", Tenant: "t", TotalMS: 1.5, Choices: []*record.Choice{
		{AdmissionID: "x", PagesMoved: 4, Root: "ff", Error: "corrupt: rows"}, {AdmissionID: "y", PagesMoved: 4, Root: "ff", VerdictsEqual: true}}}
	e := r.Audit()
	if e.Request != "a" || e.Tenant != "t" || e.TotalUS != 1500 || len(e.Choices) != 2 {
		t.Errorf("%+v", e)
	}
	if c := e.Choices[0]; c.Pages != 0 || c.Root != "" || c.Error != "corrupt: rows" || c.VerdictsEqual {
		t.Errorf("unverified: %+v", c)
	}
	if c := e.Choices[1]; c.Pages != 4 || c.Root != "ff" || !c.VerdictsEqual {
		t.Errorf("verified: %+v", c)
	}
}
