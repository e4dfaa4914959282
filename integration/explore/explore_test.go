package explore

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"leasehold.dev/protos/errs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func searched(t *testing.T, p Plan, settle bool) Found {
	t.Helper()
	f, err := Search(t.Context(), &p, settle)
	if err != nil {
		t.Fatalf("%s: %v", p.Name, err)
	}
	return f
}

func told(t *testing.T, p Plan, f Found) string {
	t.Helper()
	h, err := Tell(&p, f.History)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(h, "\n")
}

// TestSmallMeshes: no history of any length breaks a property, and all that can happen was among them.
func TestSmallMeshes(t *testing.T) {
	var taken [kinds]int
	for _, p := range Small() {
		f := searched(t, p, true)
		t.Logf("%s, %d upsets: %d states, %d transitions, depth %d, to the end: %v, %d succeeded, %d quarantined, %v", p.Name, p.Upsets, f.States,
			f.Transitions, f.Depth, f.Complete, f.Succeeded, f.Quarantined, f.Took)
		if f.Violation != nil {
			t.Errorf("%s: %v\n%s", p.Name, f.Violation, told(t, p, f))
		}
		if f.Complete != (p.Depth == 0) || p.Depth > 0 && f.Depth != p.Depth || f.Transitions < f.States-1 {
			t.Errorf("%s: to the end: %v, depth %d, %d transitions", p.Name, f.Complete, f.Depth, f.Transitions)
		}
		if f.Succeeded == 0 && f.Complete || f.Quarantined == 0 && p.Upsets > 0 {
			t.Errorf("%s: %d states with a success and %d with a quarantine: the search looks past what it is for", p.Name, f.Succeeded, f.Quarantined)
		}
		for k, n := range f.Taken {
			taken[k] += n
		}
	}
	for k, n := range taken {
		if n == 0 && kind(k) != firstUpset {
			t.Errorf("action %d was never taken", k)
		}
	}
}

// TestSeededBugs: each is found, by the shortest way, and is not there without the bug.
func TestSeededBugs(t *testing.T) {
	want := map[Bug]struct {
		steps int
		says  string
	}{
		TimerFrees:  {2, "could still be touched"},
		LateTag:     {2, "its tag is still a tenant's"},
		CopiedCount: {18, "succeeds"},
		ReusedID:    {6, "could still be touched"},
		EpochProof:  {3, "could still be touched"},
	}
	for _, p := range Seeds() {
		f := searched(t, p, false)
		t.Logf("%v: %d actions, %d states, %v", p.Bug, len(f.History), f.States, f.Took)
		w, ok := want[p.Bug]
		delete(want, p.Bug)
		if !ok || f.Violation == nil || !strings.Contains(f.Violation.Error(), w.says) || len(f.History) != w.steps {
			t.Errorf("%v: %d actions to %v, want %d to %q", p.Bug, len(f.History), f.Violation, w.steps, w.says)
			continue
		}
		h := told(t, p, f)
		if n := strings.Count("\n"+h, "\n 1  "); n != 1 || strings.Count(h, "\n")+1 < w.steps {
			t.Errorf("%v: the history reads\n%s", p.Bug, h)
		}
		p.Bug, p.Depth = NoBug, w.steps
		if f := searched(t, p, false); f.Violation != nil {
			t.Errorf("%s without the bug: %v\n%s", p.Name, f.Violation, told(t, p, f))
		}
	}
	if len(want) > 0 {
		t.Errorf("no plan looks for %v", want)
	}
}

// TestEqualOnAnyCores: neither the number of cores nor the hour decides what a search brings.
func TestEqualOnAnyCores(t *testing.T) {
	p := Small()[1]
	bug := p
	bug.Bug = EpochProof
	for _, p := range []Plan{p, bug} {
		first := searched(t, p, true)
		before := runtime.GOMAXPROCS(1)
		again := searched(t, p, true)
		runtime.GOMAXPROCS(before)
		first.Took, again.Took = 0, 0
		if errText(first.Violation) != errText(again.Violation) {
			t.Errorf("%v, then %v", first.Violation, again.Violation)
		}
		first.Violation, again.Violation = nil, nil
		if d := cmp.Diff(first, again); d != "" {
			t.Errorf("on one core (-all +one):\n%s", d)
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestEqualFingerprintsHaveEqualFutures: wherever two histories meet in one fingerprint, the same actions are possible and lead
// to the same fingerprints. A field that was left out, or a page's name that leaked in, would show here.
func TestEqualFingerprintsHaveEqualFutures(t *testing.T) {
	for _, p := range Small()[:3] {
		root, err := newWorld(&p)
		if err != nil {
			t.Fatal(err)
		}
		futures := map[fingerprint][]fingerprint{}
		level, met := []*world{root}, 0
		for depth := 0; depth < 12 && len(level) > 0; depth++ {
			var deeper []*world
			for _, w := range level {
				print, _ := w.fingerprint(nil)
				var future []fingerprint
				for _, a := range w.actions(nil) {
					c := w.clone()
					c.do(a)
					next, _ := c.fingerprint(nil)
					future = append(future, next)
					if _, seen := futures[print]; !seen {
						deeper = append(deeper, c)
					}
				}
				known, seen := futures[print]
				futures[print] = future
				if seen {
					met++
				}
				slices.SortFunc(future, func(a, b fingerprint) int { return slices.Compare(a[:], b[:]) })
				if seen && !slices.Equal(known, future) {
					t.Fatalf("%s: two histories with one fingerprint have %d and %d futures, not the same", p.Name, len(known), len(future))
				}
				if after, _ := w.fingerprint(nil); after != print {
					t.Fatalf("%s: an action on a clone changed the original", p.Name)
				}
			}
			level = deeper
			if len(level) > 3000 {
				level = level[:3000]
			}
		}
		if met < 500 {
			t.Errorf("%s: only %d histories met", p.Name, met)
		}
	}
}

func TestPlansThatCannotBe(t *testing.T) {
	for name, p := range map[string]Plan{
		"no requests":     {Pages: [2]uint32{1, 1}},
		"a large pool":    {Pages: [2]uint32{1, 5}, Asks: []Ask{otherSolo}},
		"no pool":         {Pages: [2]uint32{0, 2}, Asks: []Ask{otherSolo}},
		"a large request": {Pages: [2]uint32{4, 4}, Asks: []Ask{{"acme", 64 * 5, 1, none}}},
		"one token":       {Pages: [2]uint32{4, 4}, Asks: []Ask{{"acme", 1, 1, none}}},
	} {
		if _, err := Search(t.Context(), &p, false); errs.KindOf(err) != errs.Invalid {
			t.Errorf("%s: %v, want Invalid", name, err)
		}
	}
}

func TestASearchEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Search(ctx, &Small()[0], false); errs.KindOf(err) != errs.Unavailable {
		t.Errorf("Search after its context's end: %v", err)
	}
}
