package hold

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"leasehold.dev/mesh/registry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// set makes instances from words: "a" or "a@address".
func set(words string) []registry.Instance {
	var s []registry.Instance
	for w := range strings.FieldsSeq(words) {
		id, addr, _ := strings.Cut(w, "@")
		s = append(s, registry.Instance{Service: "decode", ID: id, Address: addr})
	}
	return s
}

func words(s []registry.Instance) string {
	var ws []string
	for _, in := range s {
		ws = append(ws, strings.TrimSuffix(in.ID+"@"+in.Address, "@"))
	}
	return strings.Join(ws, " ")
}

// A script is steps of the form "+2s hear a b", "+0s lose", each followed by what is shown then.
func TestKeeper(t *testing.T) {
	const span = 10 * time.Second
	for _, c := range []struct{ why, script string }{
		{"a set is shown as it is heard, sorted", `
			+0s hear b a  = a b
			+1s hear a    = a
			+1s hear      = `},
		{"a set that was never heard holds nothing", `
			+0s lose      = 
			+1s hear a    = a
			+1s hear      = `},
		{"while the registry is away the last set stands, for ever", `
			+0s hear a b  = a b
			+1s lose      = a b
			+9999s lose   = a b`},
		{"a registry that forgot everybody empties nothing for a span", `
			+0s hear a b  = a b
			+1s lose      = a b
			+1s hear      = a b
			+9s look      = a b
			+1s look      = `},
		{"those that beat again are shown as they are now", `
			+0s hear a b  = a b
			+0s lose      = a b
			+0s hear b@2  = a b@2
			+1s hear a@3 b@2 = a@3 b@2
			+9s look      = a@3 b@2`},
		{"new ones are shown at once", `
			+0s hear a    = a
			+0s lose      = a
			+0s hear c    = a c
			+10s look     = c`},
		{"one that beat and left within the span is shown until its end", `
			+0s hear a    = a
			+0s lose      = a
			+1s hear a    = a
			+1s hear      = a
			+8s look      = a
			+1s look      = `},
		{"a second loss within the span starts it again", `
			+0s hear a    = a
			+0s lose      = a
			+1s hear      = a
			+8s lose      = a
			+5s hear      = a
			+9s look      = a
			+1s look      = `},
		{"a loss after the span brings nobody back", `
			+0s hear a    = a
			+0s lose      = a
			+0s hear b    = a b
			+11s lose     = b
			+0s hear b    = b`},
	} {
		t.Run(c.why, func(t *testing.T) {
			k, now := keeper{span: span}, time.Unix(0, 0)
			for line := range strings.Lines(strings.TrimSpace(c.script)) {
				step, want, _ := strings.Cut(strings.TrimSpace(line), "=")
				f := strings.Fields(step)
				wait, err := time.ParseDuration(f[0][1:])
				if err != nil {
					t.Fatal(err)
				}
				now = now.Add(wait)
				switch f[1] {
				case "lose":
					k.lose(now)
				case "hear":
					k.hear(now, set(strings.Join(f[2:], " ")))
				}
				if got := words(k.show(now)); got != strings.TrimSpace(want) {
					t.Errorf("after %q: %q, want %q", strings.TrimSpace(step), got, strings.TrimSpace(want))
				}
			}
		})
	}
}

func TestKeeperProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k, now := keeper{span: 10}, time.Unix(0, 0)
		var last []registry.Instance
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 6).Draw(t, "wait")))
			before := k.show(now)
			if rapid.Bool().Draw(t, "lose") {
				k.lose(now)
				if words(k.show(now)) != words(before) {
					t.Fatalf("a loss changed %q to %q", words(before), words(k.show(now)))
				}
				continue
			}
			wasLost := k.lost
			last = set(strings.Join(rapid.SliceOfDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d"}), rapid.ID).Draw(t, "set"), " "))
			k.hear(now, last)
			shown := k.show(now)
			if !slices.IsSortedFunc(shown, registry.Compare) {
				t.Fatalf("%q is not sorted", words(shown))
			}
			for _, in := range last {
				if !slices.ContainsFunc(shown, in.Equal) {
					t.Fatalf("%s is in the registry's set but not in %q", in.ID, words(shown))
				}
			}
			for _, in := range before {
				if wasLost && !slices.ContainsFunc(shown, func(o registry.Instance) bool { return o.ID == in.ID }) {
					t.Fatalf("%s was dropped as the registry came back", in.ID)
				}
			}
		}
		if k.lost {
			k.hear(now, last)
		}
		now = now.Add(10)
		slices.SortFunc(last, registry.Compare)
		if got := k.show(now); words(got) != words(last) {
			t.Fatalf("after the span: %q, want %q", words(got), words(last))
		}
	})
}

func TestFeedGivesTheNewestSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(10 * time.Second)
		for i := range 100 {
			f.Heard(set(fmt.Sprintf("a@%d", i)))
		}
		if got := words(<-f.C()); got != "a@99" {
			t.Errorf("first read %q, want the newest set", got)
		}
		f.Heard(set("a@99"))
		synctest.Wait()
		select {
		case s := <-f.C():
			t.Errorf("a set that did not change was sent again: %q", words(s))
		default:
		}
		f.Close()
		f.Close()
		if _, ok := <-f.C(); ok {
			t.Error("the channel is open after Close")
		}
		f.Heard(set("b"))
	})
}

func TestFeedSendsAnEmptyFirstSet(t *testing.T) {
	f := New(time.Second)
	defer f.Close()
	f.Heard(nil)
	select {
	case s := <-f.C():
		if len(s) != 0 {
			t.Errorf("got %q", words(s))
		}
	default:
		t.Error("nothing sent: a reader cannot tell an empty service from an unknown one")
	}
}

func TestFeedDropsHeldInstancesByTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(10 * time.Second)
		defer f.Close()
		f.Heard(set("a b"))
		<-f.C()
		f.Lost()
		f.Heard(set("b"))
		start := time.Now()
		if got := words(<-f.C()); got != "b" || time.Since(start) != 10*time.Second {
			t.Errorf("got %q after %v, want b after 10s", got, time.Since(start))
		}
	})
}
