package boundary

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"leasehold.dev/mesh/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a Recorder behind a real /metrics, and its clock.
type rig struct {
	*Recorder
	tel *telemetry.Telemetry
	at  time.Time
}

func newRig(t *testing.T) *rig {
	t.Helper()
	tel, err := telemetry.New(t.Context(), "router", "r1", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tel.Close(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	g := &rig{tel: tel, at: time.Unix(1000, 0)}
	if g.Recorder, err = New(tel.Meter(), func() time.Time { return g.at }); err != nil {
		t.Fatal(err)
	}
	return g
}

// lines is the scraped samples of ours, sorted.
func (g *rig) lines(t *testing.T) []string {
	t.Helper()
	rec := httptest.NewRecorder()
	g.tel.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	var out []string
	for line := range strings.Lines(rec.Body.String()) {
		if strings.HasPrefix(line, LastObserved) || strings.HasPrefix(line, Incidents) {
			out = append(out, strings.TrimSpace(line))
		}
	}
	slices.Sort(out)
	return out
}

func (g *rig) want(t *testing.T, when string, want ...string) {
	t.Helper()
	if got := g.lines(t); !slices.Equal(got, want) {
		t.Errorf("%s:\n got %s\nwant %s", when, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

func sample(name string, p Property, d Detector, pair string, v string) string {
	if strings.HasPrefix(name, Incidents) {
		return fmt.Sprintf(`%s{detector=%q,property=%q} %s`, name, d, p, v)
	}
	return fmt.Sprintf(`%s{detector=%q,pair=%q,property=%q} %s`, name, d, pair, p, v)
}

func TestSilenceCountsFromExpectAndAfterEachLook(t *testing.T) {
	g := newRig(t)
	total := Incidents + "_total"
	g.want(t, "before anybody is expected")
	g.Expect(P1, Canary, "p/d")
	g.want(t, "expected", sample(total, P1, Canary, "", "0"), sample(LastObserved, P1, Canary, "p/d", "1000"))
	g.at = time.Unix(1100, 0)
	g.Expect(P1, Canary, "p/d")
	g.want(t, "expected again: no look", sample(total, P1, Canary, "", "0"), sample(LastObserved, P1, Canary, "p/d", "1000"))
	g.Observed(P1, Canary, "p/d")
	g.want(t, "observed", sample(total, P1, Canary, "", "0"), sample(LastObserved, P1, Canary, "p/d", "1100"))
	g.at = time.Unix(1200, 0)
	g.Incident(P1, Canary, "pair p/d")
	g.want(t, "an incident alone is no look", sample(total, P1, Canary, "", "1"), sample(LastObserved, P1, Canary, "p/d", "1100"))
	if at, ok := g.Last(P1, Canary, "p/d"); !ok || at.Unix() != 1100 {
		t.Errorf("Last = %v, %v, want 1100", at, ok)
	}
	g.Forget("p/d")
	g.want(t, "the pair is gone", sample(total, P1, Canary, "", "1"))
	if at, ok := g.Last(P1, Canary, "p/d"); ok {
		t.Errorf("Last of a pair that is gone = %v", at)
	}
}

func TestCombinationsOutsideOfTheTable(t *testing.T) {
	g := newRig(t)
	g.Expect(P5, LateWrite, "")
	g.Observed(P5, LateWrite, "")
	g.Observed(P5, "made-up", "")
	g.want(t, "neither is observed")
	told := []string{}
	g.Tell(func(p Property, d Detector, about string) { told = append(told, fmt.Sprint(p, " ", d, " ", about)) })
	g.Incident(P5, LateWrite, "page 7")
	g.Incident(P5, "made-up", "pair p/d")
	if want := []string{"P5 unknown page 7", "P5 unknown pair p/d"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
	g.want(t, "both incidents are kept", sample(Incidents+"_total", P5, Unknown, "", "2"))
}

func TestSeriesAreBounded(t *testing.T) {
	g := newRig(t)
	for i := range MaxSeries + 3 {
		g.Observed(P1, Replay, fmt.Sprint("p/", i))
	}
	if n := len(g.lines(t)); n != MaxSeries {
		t.Errorf("%d series, want %d", n, MaxSeries)
	}
	rec := httptest.NewRecorder()
	g.tel.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	if !strings.Contains(rec.Body.String(), Untracked+" 3\n") {
		t.Errorf("%s does not say that 3 found no room", Untracked)
	}
	g.at = time.Unix(2000, 0)
	g.Observed(P1, Replay, "p/0")
	if at, _ := g.Last(P1, Replay, "p/0"); at.Unix() != 2000 {
		t.Errorf("a known pair is at %v, want 2000: the bound is for new ones", at)
	}
	g.Forget("p/0")
	g.Observed(P1, Replay, "p/new")
	if _, ok := g.Last(P1, Replay, "p/new"); !ok {
		t.Error("no room after one was forgotten")
	}
}

func TestANilRecorderRecordsNothing(t *testing.T) {
	var r *Recorder
	r.Expect(P1, Canary, "")
	r.Observed(P1, Canary, "")
	r.Incident(P1, Canary, "pair p/d")
	r.Forget("")
	if _, ok := r.Last(P1, Canary, ""); ok {
		t.Error("it knows a time")
	}
}

func TestEveryPropertyHasTwoDetectors(t *testing.T) {
	for _, p := range Properties {
		n := 0
		for d := range Watches {
			if watches(p, d) {
				n++
			}
		}
		if n < 2 {
			t.Errorf("%s has %d detectors: with one off, nobody looks", p, n)
		}
	}
	for d, ps := range Watches {
		if len(ps) == 0 {
			t.Errorf("%s watches nothing", d)
		}
	}
}

func TestAllAtOnce(t *testing.T) {
	g := newRig(t)
	done := make(chan struct{})
	for i := range 4 {
		go func() {
			defer func() { done <- struct{}{} }()
			for j := range 200 {
				pair := fmt.Sprint(i, "/", j%7)
				g.Expect(P4, Reconciler, pair)
				g.Observed(P4, Reconciler, pair)
				g.Incident(P4, Reconciler, "pair p/d")
				g.Forget(pair)
			}
		}()
	}
	for range 4 {
		<-done
	}
	g.want(t, "after all", sample(Incidents+"_total", P4, Reconciler, "", "800"))
}
