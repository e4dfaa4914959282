package explore

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestLongHistories goes far beyond what can be searched: up to four requests of three tenants on up to four pages, upsets
// without end, several hundred actions; after each the same checks, and at the end the baseline.
func TestLongHistories(t *testing.T) {
	var actions, succeeded, quarantined int
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlan(t)
		w, err := newWorld(&p)
		if err != nil {
			t.Fatal(err)
		}
		var history []string
		for range rapid.IntRange(50, 400).Draw(t, "actions") {
			todo := w.actions(nil)
			if len(todo) == 0 {
				break
			}
			a := draw(t, todo)
			history = append(history, w.describe(a))
			w.do(a)
			actions++
			if err := w.check(); err != nil {
				t.Fatalf("%v\n%s", err, strings.Join(history, "\n"))
			}
			if f := w.flags(); f > 0 {
				succeeded, quarantined = succeeded+int(f&1), quarantined+int(f>>1)
			}
		}
		if done, err := w.settle(); err != nil {
			t.Fatalf("%v\n%s\nthen %v", err, strings.Join(history, "\n"), done)
		}
	})
	if actions < 2000 || succeeded < actions/100 || quarantined < actions/100 {
		t.Errorf("%d actions, %d states with a success, %d with a quarantine: not worth much", actions, succeeded, quarantined)
	}
}

// draw prefers what is not an upset, so that requests come somewhere.
func draw(t *rapid.T, todo []action) action {
	var calm []action
	for _, a := range todo {
		if a.kind < firstUpset {
			calm = append(calm, a)
		}
	}
	if len(calm) > 0 && rapid.IntRange(0, 15).Draw(t, "calm") > 0 {
		todo = calm
	}
	return todo[rapid.IntRange(0, len(todo)-1).Draw(t, "what")]
}

func drawPlan(t *rapid.T) Plan {
	p := Plan{Name: "drawn", Upsets: rapid.IntRange(0, 60).Draw(t, "upsets"), Quota: rapid.SampledFrom([]uint32{0, 0, 2, 3}).Draw(t, "quota"),
		Share: rapid.Uint32Range(0, 3).Draw(t, "share"), QuarantineCap: rapid.Uint32Range(0, 4).Draw(t, "cap")}
	for i := range p.Pages {
		p.Pages[i] = rapid.Uint32Range(1, maxPages).Draw(t, "pages")
	}
	movers := []Ask{longSplit, shortSplit, otherSolo, longSolo}
	if rapid.Bool().Draw(t, "one broker") {
		movers = []Ask{handedOver, otherSolo, longSolo}
	}
	for i := range rapid.IntRange(1, 4).Draw(t, "requests") {
		a := rapid.SampledFrom(movers).Draw(t, "ask")
		a.Tenant = []string{"acme", "globex", "initech"}[(i+rapid.IntRange(0, 1).Draw(t, "tenant"))%3]
		p.Asks = append(p.Asks, a)
	}
	return p
}

// TestSettleFindsALeak: a world in which a proof is lost for good does not come back to its baseline, and settle says so.
func TestSettleFindsALeak(t *testing.T) {
	p := Small()[0]
	w, err := newWorld(&p)
	if err != nil {
		t.Fatal(err)
	}
	w.do(action{kind: aAsk})
	b := w.taker()
	b.handles = nil // nobody will tell of the end of the process
	w.workers[decode].leases = nil
	if _, err := w.settle(); err == nil || !strings.Contains(err.Error(), "not at its baseline") {
		t.Errorf("settle without a proof: %v", err)
	}
	if got := fmt.Sprint(b.table.Free()); got != "0" {
		t.Errorf("%s pages are free without a proof", got)
	}
}
