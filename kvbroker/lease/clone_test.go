package lease

import (
	"bytes"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// namesOf gives pages names in the order in which they come up.
func namesOf() func(uint32) byte {
	seen := map[uint32]byte{}
	return func(p uint32) byte {
		if _, ok := seen[p]; !ok {
			seen[p] = byte(len(seen))
		}
		return seen[p]
	}
}

func stateOf(t *Table) []byte { return t.AppendState(nil, namesOf()) }

// TestClonesGoTheirOwnWay: what happens to a clone does not touch the original, and the same events then give the same.
func TestClonesGoTheirOwnWay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := &game{t: t}
		g.play(Config{Pages: rapid.Uint32Range(1, 12).Draw(t, "pages"), QuarantineCap: 4}, rapid.IntRange(1, 60).Draw(t, "events"))
		original := g.tab
		before := stateOf(original)
		snap := original.Snapshot()
		g.tab = original.Clone()
		if !bytes.Equal(stateOf(g.tab), before) || g.tab.selfCheck() != nil {
			t.Fatalf("a clone is not as its original: %v", g.tab.selfCheck())
		}
		at := len(g.history)
		for range 20 {
			g.step(g.draw())
		}
		if !bytes.Equal(stateOf(original), before) || original.selfCheck() != nil {
			t.Fatalf("the original changed with its clone (-before +after):\n%s", cmp.Diff(snap, original.Snapshot()))
		}
		for i, ev := range g.history[at:] {
			if got := outcome(original.Step(ev)); got != g.outcomes[at+i] {
				t.Fatalf("event %d gives %q, the clone gave %q", i, got, g.outcomes[at+i])
			}
		}
		if !bytes.Equal(stateOf(original), stateOf(g.tab)) {
			t.Fatal("equal histories, different states")
		}
	})
}

// TestStateLooksAtEveryField: a field that is new is either in AppendState, or does not decide what comes next and is named here.
func TestStateLooksAtEveryField(t *testing.T) {
	for _, tt := range []struct {
		of            any
		in, elsewhere []string
	}{
		{Table{}, []string{"pages", "free", "leases", "ended", "tenants", "workers", "drained", "over"},
			[]string{"cfg" /* fixed */, "count", "serving" /* follow from pages and leases */, "slots", "seq", "pairs" /* names given out */}},
		{page{}, []string{"state", "tagged", "sealed"}, []string{"generation"}},
		{entry{}, []string{"id", "admission", "role", "tenant", "by", "epoch", "pages", "moved", "rows", "fromSource", "state", "finished",
			"staged", "first", "seals", "working", "movers", "end"}, []string{"seq" /* their order */}},
		{tenant{}, []string{"name", "pages"}, []string{"slot"}},
		{worker{}, []string{"attach", "epoch"}, []string{"seq", "name", "pid" /* for operators */, "leases"}},
		{ending{}, []string{"attach", "kind"}, []string{"reason"}},
		{endings{}, []string{"of"}, []string{"ring", "next" /* which of 4096 is forgotten first */}},
	} {
		var have []string
		typ := reflect.TypeOf(tt.of)
		for i := range typ.NumField() {
			have = append(have, typ.Field(i).Name)
		}
		want := slices.Concat(tt.in, tt.elsewhere)
		slices.Sort(have)
		slices.Sort(want)
		if d := cmp.Diff(want, have); d != "" {
			t.Errorf("fields of %v (-known +there):\n%s", typ, d)
		}
	}
}

// TestStatesDiffer: each thing that decides what comes next shows.
func TestStatesDiffer(t *testing.T) {
	seen := map[string]string{}
	for name, events := range map[string][]Event{
		"nothing":            nil,
		"another worker":     {Attached{Attach: name16[Attach]("v"), Worker: "v", Epoch: 8}},
		"a lease":            {solo("a", 1)},
		"a longer one":       {solo("a", 2)},
		"of another id":      {solo("b", 1)},
		"a sealed page":      {solo("a", 1), Seal{retire("a").Ref, []PageSeal{sealOf(0, 64)}}},
		"in quarantine":      {solo("a", 1), Expire{name16[ID]("a")}},
		"retired":            {solo("a", 1), retire("a")},
		"cleared":            {solo("a", 1), retire("a"), Zeroed{[]uint32{0}}},
		"the other cleared":  {solo("a", 1), retire("a"), solo("b", 1), retire("b"), Zeroed{[]uint32{0}}},
		"draining":           {Drain{"asked"}},
		"a mover":            {destination("a"), PullStarted{name16[ID]("a")}},
		"no mover":           {destination("a")},
		"a page has arrived": {destination("a"), PullStarted{name16[ID]("a")}, Arrived{name16[ID]("a"), 0}},
	} {
		tab := newTable(t, Config{Pages: 3})
		for _, ev := range events {
			must(t, tab, ev)
		}
		state := string(stateOf(tab))
		if other, ok := seen[state]; ok {
			t.Errorf("%q and %q have equal states", name, other)
		}
		seen[state] = name
	}
}

func destination(name string) Reserve {
	return Reserve{Lease: name16[ID](name), Attach: name16[Attach]("w"), Role: Destination, Tenant: "acme", Admission: name16[Admission](name),
		Pages: 2, Moved: 2, Rows: 65}
}

// TestStatesThatDifferInNumbersOnly are equal: pages, slots and generations.
func TestStatesThatDifferInNumbersOnly(t *testing.T) {
	one, two := newTable(t, Config{Pages: 3}), newTable(t, Config{Pages: 3, Generation: 77})
	for _, n := range []string{"x", "y"} {
		for _, tab := range []*Table{one, two} {
			must(t, tab, solo(n, 1))
		}
	}
	pages := map[*Table][]uint32{one: {0, 1}, two: {1, 0}}
	for _, tab := range []*Table{one, two} {
		must(t, tab, retire("x"))
		must(t, tab, retire("y"))
		for _, p := range pages[tab] {
			must(t, tab, Zeroed{[]uint32{p}})
		}
		must(t, tab, solo("z", 1))
	}
	if one.Pages(name16[ID]("z"))[0].Page == two.Pages(name16[ID]("z"))[0].Page {
		t.Fatal("both have the same page, so this shows nothing")
	}
	if !bytes.Equal(stateOf(one), stateOf(two)) {
		t.Error("states that differ in page numbers only are different")
	}
}
