package embedded

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"leasehold.dev/mesh/registry"
	"leasehold.dev/protos/errs"
)

func inst(service, id string) registry.Instance {
	return registry.Instance{Service: service, ID: id, Address: "127.0.0.1:7000"}
}

func ids(set []registry.Instance) string {
	var s []string
	for _, in := range set {
		s = append(s, in.Service+"/"+in.ID)
	}
	return strings.Join(s, " ")
}

func at(ms int) time.Time { return time.UnixMilli(int64(ms)) }

func mustBeat(t *testing.T, tb table, ms int, in registry.Instance, passing bool) bool {
	t.Helper()
	changed, err := tb.beat(at(ms), in, time.Second, passing)
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

func TestTableBeats(t *testing.T) {
	tb := table{}
	moved := inst("decode", "d1")
	moved.Address = "127.0.0.1:7001"
	tagged := moved
	tagged.Meta = map[string]string{"k": "v"}
	for i, c := range []struct {
		why     string
		in      registry.Instance
		passing bool
		changed bool
		shown   string
	}{
		{"a first beat that does not pass shows nobody", inst("decode", "d1"), false, false, ""},
		{"a passing one does", inst("decode", "d1"), true, true, "decode/d1"},
		{"the same again changes nothing", inst("decode", "d1"), true, false, "decode/d1"},
		{"another address is a change", moved, true, true, "decode/d1"},
		{"other meta is a change", tagged, true, true, "decode/d1"},
		{"another service sorts after", inst("router", "a"), true, true, "decode/d1 router/a"},
		{"one that does not pass is out at once", tagged, false, true, "router/a"},
		{"and changes unseen", moved, false, false, "router/a"},
	} {
		if got := mustBeat(t, tb, i, c.in, c.passing); got != c.changed {
			t.Errorf("%s: changed = %v", c.why, got)
		}
		if got := ids(tb.passing("")); got != c.shown {
			t.Errorf("%s: shown %q, want %q", c.why, got, c.shown)
		}
	}
	if got := ids(tb.passing("router")); got != "router/a" {
		t.Errorf("passing(router) = %q", got)
	}
	if !tb.leave("router", "a") || tb.leave("router", "a") || tb.leave("decode", "d1") {
		t.Error("leave: want a change for a passing instance, once, and none for one that does not pass")
	}
}

func TestTableExpiry(t *testing.T) {
	tb := table{}
	mustBeat(t, tb, 0, inst("decode", "d1"), true)
	mustBeat(t, tb, 500, inst("decode", "d2"), true)
	mustBeat(t, tb, 200, inst("decode", "d3"), false)
	for _, c := range []struct {
		ms      int
		changed bool
		shown   string
		next    int
	}{
		{999, false, "decode/d1 decode/d2", 1000},
		{1000, true, "decode/d2", 1200},
		{1200, false, "decode/d2", 1500},
		{1500, true, "", 0},
	} {
		if got := tb.expire(at(c.ms)); got != c.changed {
			t.Errorf("expire(%d ms): changed = %v", c.ms, got)
		}
		next := time.Time{}
		if c.next != 0 {
			next = at(c.next)
		}
		if got := ids(tb.passing("")); got != c.shown || !tb.next().Equal(next) {
			t.Errorf("after %d ms: %q and next %v, want %q and %v", c.ms, got, tb.next(), c.shown, next)
		}
	}
}

func TestTableRefuses(t *testing.T) {
	tb := table{}
	for why, c := range map[string]struct {
		in  registry.Instance
		ttl time.Duration
	}{
		"an empty id":     {inst("decode", ""), time.Second},
		"a slash":         {inst("decode", "a/b"), time.Second},
		"no port":         {registry.Instance{Service: "decode", ID: "d1", Address: "127.0.0.1"}, time.Second},
		"a ttl too short": {inst("decode", "d1"), minTTL - 1},
		"a ttl too long":  {inst("decode", "d1"), maxTTL + 1},
	} {
		if changed, err := tb.beat(at(0), c.in, c.ttl, true); errs.KindOf(err) != errs.Invalid || changed || len(tb) != 0 {
			t.Errorf("%s: %v, %v, %d rows; want invalid and no row", why, changed, err, len(tb))
		}
	}
	for i := range maxRows {
		mustBeat(t, tb, 0, inst("decode", fmt.Sprint(i)), true)
	}
	if _, err := tb.beat(at(0), inst("decode", "more"), time.Second, true); errs.KindOf(err) != errs.Exhausted {
		t.Errorf("one row too many: %v, want exhausted", err)
	}
	if mustBeat(t, tb, 1, inst("decode", "0"), false); len(tb) != maxRows {
		t.Errorf("a known instance was refused by a full table: %d rows", len(tb))
	}
}

// The table is compared with a plain list of all beats.
func TestTableAgainstTheListOfBeats(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type last struct {
			expires int
			passing bool
		}
		tb, model, now := table{}, map[string]last{}, 0
		for range rapid.IntRange(1, 80).Draw(t, "events") {
			now += rapid.IntRange(0, 700).Draw(t, "wait")
			before := ids(tb.passing("decode"))
			id := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "id")
			var changed bool
			switch rapid.IntRange(0, 2).Draw(t, "event") {
			case 0:
				passing := rapid.Bool().Draw(t, "passing")
				var err error
				if changed, err = tb.beat(at(now), inst("decode", id), time.Second, passing); err != nil {
					t.Fatal(err)
				}
				model[id] = last{now + 1000, passing}
			case 1:
				changed = tb.leave("decode", id)
				delete(model, id)
			case 2:
				changed = tb.expire(at(now))
				for id, l := range model {
					if now >= l.expires {
						delete(model, id)
					}
				}
			}
			var want []string
			for _, id := range []string{"a", "b", "c"} {
				if model[id].passing {
					want = append(want, "decode/"+id)
				}
			}
			got := ids(tb.passing("decode"))
			if got != strings.Join(want, " ") {
				t.Fatalf("passing = %q, want %q", got, want)
			}
			if changed != (got != before) {
				t.Fatalf("changed = %v as %q became %q", changed, before, got)
			}
		}
	})
}
