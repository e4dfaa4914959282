package bar

import (
	"context"
	"slices"
	"time"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/integration/single"
	"leasehold.dev/protos/pagesum"
)

const (
	guardPairs   = 20
	guardAtMost  = 1.03
	guardContext = 2000
	guardSteps   = 24
)

// upper95 is the upper 95 % bound of the median of n paired ratios, free of any distribution: the order statistic of
// rank 15 of 20 (two-sided 95.9 %, from the binomial law of the count below the median).
func upper95(ratios []float64) float64 {
	return slices.Sorted(slices.Values(ratios))[len(ratios)*3/4-1]
}

// runBenchGuards times the same engine with tags and digests on and off, in ABBA order.
func runBenchGuards(ctx context.Context, e *Env) (Result, error) {
	m, err := e.load()
	if err != nil {
		return Result{}, err
	}
	defer m.Close()
	open := func(off bool) (*single.Runner, error) {
		return single.Open(m, engine.Options{Backend: "cpu", Threads: 2, MaxTokens: 512, MaxSeqs: 1, CacheDir: e.Cache, GuardsOff: off}, 40)
	}
	on, err := open(false)
	if err != nil {
		return Result{}, err
	}
	defer on.Close()
	off, err := open(true)
	if err != nil {
		return Result{}, err
	}
	defer off.Close()
	fig := map[string]any{"pairs": guardPairs, "context": guardContext, "simd": on.Engine.SIMD()}
	met := true
	for _, phase := range []struct {
		name string
		run  func(*single.Runner) (time.Duration, error)
	}{{"decode", guardDecode()}, {"prefill", guardPrefill}} {
		ratios, onTime, offTime, err := abba(ctx, on, off, phase.run)
		if err != nil {
			return Result{Figures: fig}, err
		}
		up := upper95(ratios)
		fig[phase.name+"_median_ratio"], fig[phase.name+"_upper95"] = median(ratios), up
		fig[phase.name+"_on_us"], fig[phase.name+"_off_us"] = onTime.Microseconds(), offTime.Microseconds()
		e.sayf("bench-guards: %s: on %v, off %v, median paired ratio %.4f, upper bound %.4f", phase.name, onTime, offTime, median(ratios), up)
		met = met && up <= guardAtMost
	}
	sum, err := pageSumTime(on)
	if err != nil {
		return Result{Figures: fig}, err
	}
	fig["page_digest_at_rest_ns"] = sum.Nanoseconds()
	// Guards on decode at this context check every page twice in each layer and kv head's pass.
	pages := float64(guardContext/64 + 1)
	extra := float64(fig["decode_on_us"].(int64)-fig["decode_off_us"].(int64)) * 1e3 / guardSteps
	fig["decode_extra_ns_per_step"], fig["decode_extra_ns_per_page"] = extra, extra/pages
	return Result{Met: met, Figures: fig}, nil
}

// abba runs pairs in the order on, off, off, on and returns each pair's ratio and the medians.
func abba(ctx context.Context, on, off *single.Runner, run func(*single.Runner) (time.Duration, error)) (ratios []float64, a, b time.Duration, err error) {
	var as, bs []float64
	for _, r := range []*single.Runner{on, off} {
		if _, err := run(r); err != nil {
			return nil, 0, 0, err
		}
	}
	for i := range guardPairs {
		order := []*single.Runner{on, off}
		if i%2 == 1 {
			order = []*single.Runner{off, on}
		}
		var t [2]float64
		for _, r := range order {
			d, err := run(r)
			if err != nil {
				return nil, 0, 0, err
			}
			k := 0
			if r == off {
				k = 1
			}
			t[k] = d.Seconds()
		}
		if err := ctx.Err(); err != nil {
			return nil, 0, 0, err
		}
		as, bs, ratios = append(as, t[0]), append(bs, t[1]), append(ratios, t[0]/t[1])
	}
	return ratios, seconds(median(as)), seconds(median(bs)), nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// guardDecode times steps at the same depth of one long sequence each; the sequence is filled once.
func guardDecode() func(*single.Runner) (time.Duration, error) {
	seqs := map[*single.Runner]*single.Seq{}
	return func(r *single.Runner) (time.Duration, error) {
		s := seqs[r]
		if s == nil {
			var err error
			if s, err = r.Open(guardContext + guardSteps); err != nil {
				return 0, err
			}
			if _, err := s.Feed(prompt(guardContext-guardSteps*(guardPairs+1)), 512); err != nil {
				return 0, err
			}
			seqs[r] = s
		}
		start := time.Now()
		for range guardSteps {
			if _, err := s.Feed([]int32{7}, 1); err != nil {
				return 0, err
			}
		}
		return time.Since(start), nil
	}
}

func guardPrefill(r *single.Runner) (time.Duration, error) {
	s, err := r.Open(512)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	start := time.Now()
	_, err = s.Feed(prompt(512), 512)
	return time.Since(start), err
}

// pageSumTime is the time to digest one full page at rest, as a broker does on arrival.
func pageSumTime(r *single.Runner) (time.Duration, error) {
	l := r.Engine.Layout()
	page := make([]byte, l.PageBytes())
	for i := range page {
		page[i] = byte(i)
	}
	h := l.Hash()
	keys := pagesum.Expand(h[:], h[:], l.Shape())
	var times []float64
	for range 21 {
		start := time.Now()
		if _, _, err := engine.PageSum(l, page, 64, keys); err != nil {
			return 0, err
		}
		times = append(times, time.Since(start).Seconds())
	}
	return seconds(median(times)), nil
}
