package replay_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	"leasehold.dev/router/replay"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	began = time.Unix(1000, 0)
	pd    = replay.Pair{Prefill: "p", Decode: "d", PrefillInstance: "1", DecodeInstance: "1"}
)

func job(n int) *replay.Job {
	return &replay.Job{Receipt: fmt.Sprint(n), Tenant: "acme", IDs: make([]int32, n), MaxNew: 10, New: 10, Numerics: "ref-1", Pair: pd, Output: []byte("o"), Logits: []byte("l")}
}

// script drives a core: "take 100" (a request of 100 tokens that chance picks), "pass 100" (that it does not), "next",
// and results. It answers with what happened.
func script(c *replay.Core, at *time.Time, line string) string {
	word, arg, _ := strings.Cut(line, " ")
	var n int
	_, _ = fmt.Sscan(arg, &n)
	show := func(what string, dropped []replay.Drop) string {
		for _, d := range dropped {
			what += fmt.Sprintf(" drop %s %s", d.Job.Receipt, d.Why)
		}
		return strings.TrimSpace(what)
	}
	switch word {
	case "take", "pass":
		taken, dropped := c.Finished(job(n), map[string]float64{"take": 0, "pass": 0.999}[word])
		return show(string(taken), dropped)
	case "next":
		j, again := c.Next(*at)
		switch {
		case j != nil:
			return "run " + j.Receipt
		case again.IsZero():
			return "nothing"
		}
		return "wait " + again.Sub(*at).String()
	case "after":
		d, _ := time.ParseDuration(arg)
		*at = at.Add(d)
		return ""
	}
	return show("", c.Ended(*at, replay.Result(word)))
}

func TestTraces(t *testing.T) {
	all := replay.Policy{Share: 1, Budget: 1, Bytes: 1 << 20}
	for _, c := range []struct {
		name   string
		policy replay.Policy
		steps  []string // step -> answer
	}{
		{"the first of a pair is always run again, and then what is near the longest", replay.Policy{Share: 0, Budget: 0.01, Bytes: 1 << 20},
			[]string{"pass 100 -> longest", "next -> run 100", "equal", "pass 90 ->", "pass 91 -> longest", "pass 5 ->", "next -> run 91", "equal", "pass 90 ->",
				"pass 1000 -> longest", "pass 200 -> longest", "next -> run 1000", "equal", "pass 900 ->", "pass 901 -> longest"}},
		{"what was different is not verified", replay.Policy{Share: 0, Budget: 0.01, Bytes: 1 << 20},
			[]string{"pass 100 -> longest", "next -> run 100", "different", "pass 5 -> longest", "next -> run 5", "broken", "pass 1 -> longest"}},
		{"the longest go before the sampled", all, []string{"take 100 -> longest", "next -> run 100", "equal", "take 50 -> sampled", "take 60 -> sampled", "take 95 -> longest", "take 99 -> longest",
			"next -> run 95", "equal", "next -> run 99", "equal", "next -> run 50", "equal", "next -> run 60", "equal", "next -> nothing"}},
		{"chance and share", replay.Policy{Share: 0.5, Budget: 1, Bytes: 1 << 20}, []string{"take 100 -> longest", "next -> run 100", "equal", "take 50 -> sampled", "pass 50 ->"}},
		{"off", replay.Policy{Share: 1, Budget: 0, Bytes: 1 << 20}, []string{"take 100 ->", "take 1000 ->", "next -> nothing"}},
		{"one at a time", all, []string{"take 100 -> longest", "take 101 -> longest", "next -> run 100", "next -> nothing", "equal", "next -> run 101"}},
		{"it backs off while tenants need the worker", all, []string{"take 100 -> longest", "next -> run 100", "busy", "next -> wait 250ms", "after 250ms", "next -> run 100", "busy",
			"next -> wait 500ms", "after 499ms", "next -> wait 1ms", "after 1ms", "next -> run 100", "busy", "next -> wait 1s", "after 1s", "next -> run 100", "equal",
			"take 200 -> longest", "next -> run 200", "busy", "next -> wait 250ms"}},
		{"the wait has an end", all, []string{"take 100 -> longest", "next -> run 100", "busy", "after 1h", "next -> run 100", "busy", "after 1h", "next -> run 100", "busy", "after 1h", "next -> run 100",
			"busy", "after 1h", "next -> run 100", "busy", "after 1h", "next -> run 100", "busy", "after 1h", "next -> run 100", "busy", "after 1h", "next -> run 100", "busy", "next -> wait 30s"}},
		{"one that waits for its tenant's pages does not hold up the others", all, []string{"take 100 -> longest", "take 101 -> longest", "next -> run 100", "busy", "after 1s", "next -> run 101"}},
		{"a lost worker is tried three times", all, []string{"take 100 -> longest", "next -> run 100", "away", "after 1s", "next -> run 100", "away", "after 1s", "next -> run 100", "away -> drop 100 lost", "next -> nothing"}},
		{"no worker of its class", all, []string{"take 100 -> longest", "next -> run 100", "nobody -> drop 100 no_worker", "next -> nothing"}},
		{"a full queue gives up the sampled, never for a sampled one", replay.Policy{Share: 1, Budget: 1, Bytes: 2000}, []string{"take 100 -> longest", "next -> run 100", "equal",
			"take 80 -> sampled", "take 81 -> sampled", "take 82 -> sampled drop 82 full", "take 95 -> longest drop 81 full", "take 96 -> longest drop 80 full", "take 97 -> longest drop 97 full",
			"next -> run 95", "equal", "next -> run 96"}},
		{"one that is larger than the queue", replay.Policy{Share: 1, Budget: 1, Bytes: 2000}, []string{"take 400 -> longest drop 400 full", "next -> nothing"}},
		{"a result of nothing", all, []string{"equal", "next -> nothing"}},
	} {
		core, at := replay.NewCore(c.policy), began
		for i, step := range c.steps {
			do, want, _ := strings.Cut(step, "->")
			if got := script(core, &at, strings.TrimSpace(do)); got != strings.TrimSpace(want) {
				t.Errorf("%s, step %d, %s: got %q", c.name, i, step, got)
				break
			}
		}
	}
}

func TestAPairAfterARestartIsAnotherOne(t *testing.T) {
	for _, twist := range []func(*replay.Pair){func(p *replay.Pair) { p.PrefillInstance = "2" }, func(p *replay.Pair) { p.DecodeInstance = "2" },
		func(p *replay.Pair) { p.Prefill = "q" }, func(p *replay.Pair) { p.Decode = "e" }} {
		c := replay.NewCore(replay.Policy{Budget: 0.01, Bytes: 1 << 20})
		c.Finished(job(100), 1)
		c.Next(began)
		c.Ended(began, replay.Equal)
		same, other := job(50), job(50)
		twist(&other.Pair)
		if taken, _ := c.Finished(same, 1); taken != "" {
			t.Errorf("half as long on the same pair: %q", taken)
		}
		if taken, _ := c.Finished(other, 1); taken != replay.Longest {
			t.Errorf("on %+v: %q, want longest", other.Pair, taken)
		}
	}
}

// Whatever comes: sampled replays stay within the budget, and what waits within its bytes; nothing is lost unsaid.
func TestBudgetAndBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := replay.Policy{Share: rapid.Float64Range(0, 1).Draw(t, "share"), Budget: rapid.Float64Range(0.001, 0.2).Draw(t, "budget"), Bytes: rapid.Int64Range(600, 20000).Draw(t, "bytes")}
		c, now := replay.NewCore(p), began
		var served, sampled, most float64
		taken, ended, dropped := 0, 0, 0
		long := map[*replay.Job]bool{}
		var running *replay.Job
		gone := func(d []replay.Drop) {
			dropped += len(d)
			for _, one := range d {
				if !long[one.Job] {
					sampled -= float64(one.Job.Tokens())
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"finished": func(t *rapid.T) {
				j := job(rapid.IntRange(1, 2000).Draw(t, "n"))
				served, most = served+float64(j.Tokens()), max(most, float64(j.Tokens()))
				why, d := c.Finished(j, rapid.Float64Range(0, 0.999).Draw(t, "draw"))
				if why != "" {
					taken++
				}
				if long[j] = why == replay.Longest; why == replay.Sampled {
					sampled += float64(j.Tokens())
				}
				gone(d)
			},
			"next": func(t *rapid.T) {
				if j, _ := c.Next(now); j != nil {
					if running != nil {
						t.Fatal("two at once")
					}
					running = j
				}
			},
			"ended": func(t *rapid.T) {
				r := rapid.SampledFrom([]replay.Result{replay.Equal, replay.Different, replay.Broken, replay.Busy, replay.Away, replay.Nobody}).Draw(t, "result")
				before, _ := c.Waiting()
				d := c.Ended(now, r)
				if after, _ := c.Waiting(); running != nil && after == before && len(d) == 0 {
					ended++
				}
				gone(d)
				running = nil
			},
			"later": func(t *rapid.T) { now = now.Add(time.Duration(rapid.IntRange(0, 60).Draw(t, "s")) * time.Second) },
			"": func(t *rapid.T) {
				jobs, b := c.Waiting()
				busy := 0
				if running != nil {
					busy = 1
				}
				if b > p.Bytes || b < 0 || sampled > p.Budget*served+most+1 {
					t.Fatalf("%d bytes wait, at most %d; %v tokens sampled of %v served, budget %v", b, p.Bytes, sampled, served, p.Budget)
				}
				if taken != jobs+busy+ended+dropped {
					t.Fatalf("%d taken: %d wait, %d run, %d ended, %d dropped", taken, jobs, busy, ended, dropped)
				}
			},
		})
	})
}

func TestStopStringsCount(t *testing.T) {
	c := replay.NewCore(replay.Policy{Share: 1, Budget: 1, Bytes: 2000})
	j := job(1)
	j.Sampling = &decodev1.Sampling{Stop: []string{strings.Repeat("x", 3000)}}
	if _, dropped := c.Finished(j, 0); len(dropped) != 1 || dropped[0].Why != replay.Full {
		t.Errorf("dropped %+v, want one that is too large", dropped)
	}
}

func TestSampledReplaysStayWithinTheirBudget(t *testing.T) {
	for _, budget := range []float64{0.01, 0.1, 1} {
		c := replay.NewCore(replay.Policy{Share: 1, Budget: budget, Bytes: 1 << 30})
		c.Finished(job(10_000), 0) // the longest: from here on chance decides
		c.Next(began)
		c.Ended(began, replay.Equal)
		served, sampled, last := uint64(10_010), uint64(0), uint64(0)
		for i := range 5000 {
			j := job(50 + i%100)
			served += j.Tokens()
			if why, _ := c.Finished(j, 0); why == replay.Sampled {
				sampled, last = sampled+j.Tokens(), j.Tokens()
			}
		}
		if most := budget*float64(served) + float64(last); float64(sampled) > most || float64(sampled) < 0.95*budget*float64(served) {
			t.Errorf("budget %v: %d tokens of %d were taken, want close to %.0f", budget, sampled, served, budget*float64(served))
		}
	}
}
