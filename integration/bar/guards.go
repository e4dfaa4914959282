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
	decodeLaps   = 40 // of one token
	prefillLaps  = 24 // of 64 tokens
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
		return single.Open(m, engine.Options{Backend: "cpu", Threads: 2, MaxTokens: 512, MaxSeqs: 2, CacheDir: e.Cache, GuardsOff: off}, 40)
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
		name  string
		laps  int
		start func(*single.Runner) (func() error, func() error, error)
	}{{"decode", decodeLaps, guardDecode()}, {"prefill", prefillLaps, guardPrefill}} {
		ratios, onTime, offTime, err := abba(ctx, on, off, phase.laps, phase.start)
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
	extra := float64(fig["decode_on_us"].(int64)-fig["decode_off_us"].(int64)) * 1e3
	fig["decode_extra_ns_per_step"], fig["decode_extra_ns_per_page"] = extra, extra/pages
	return Result{Met: met, Figures: fig}, nil
}

// abba takes pairs of laps: within a pair, both runners' laps alternate in the order on, off, off, on, so that what
// disturbs the machine disturbs both. The i-th laps of both do the same work at nearly the same time; a pair's ratio is
// the median of theirs.
func abba(ctx context.Context, on, off *single.Runner, laps int, start func(*single.Runner) (lap func() error, end func() error, err error)) (ratios []float64, a, b time.Duration, err error) {
	var as, bs []float64
	for range guardPairs {
		var lap, end [2]func() error
		for k, r := range []*single.Runner{on, off} {
			if lap[k], end[k], err = start(r); err != nil {
				return nil, 0, 0, err
			}
		}
		var times [2][]float64
		for i := range 2 * laps {
			k := (i + 1) / 2 % 2
			began := time.Now()
			if err := lap[k](); err != nil {
				return nil, 0, 0, err
			}
			times[k] = append(times[k], time.Since(began).Seconds())
		}
		if err := errorsFirst(end[0](), end[1](), ctx.Err()); err != nil {
			return nil, 0, 0, err
		}
		as, bs, ratios = append(as, median(times[0])), append(bs, median(times[1])), append(ratios, ratio(times[0], times[1]))
	}
	return ratios, seconds(median(as)), seconds(median(bs)), nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// guardDecode gives laps of one token each, at the end of one long sequence that is filled once and grows.
func guardDecode() func(*single.Runner) (func() error, func() error, error) {
	seqs := map[*single.Runner]*single.Seq{}
	return func(r *single.Runner) (func() error, func() error, error) {
		s := seqs[r]
		if s == nil {
			var err error
			if s, err = r.Open(guardContext); err != nil {
				return nil, nil, err
			}
			if _, err := s.Feed(prompt(guardContext-guardPairs*decodeLaps), 512); err != nil {
				return nil, nil, err
			}
			seqs[r] = s
		}
		lap := func() error {
			_, err := s.Feed([]int32{7}, 1)
			return err
		}
		return lap, func() error { return nil }, nil
	}
}

// guardPrefill gives laps of an eighth of a 512-token prompt each, one prompt after the other.
func guardPrefill(r *single.Runner) (func() error, func() error, error) {
	var s *single.Seq
	var ids []int32
	end := func() error {
		if s == nil {
			return nil
		}
		return s.Close()
	}
	lap := func() error {
		if len(ids) == 0 {
			if err := end(); err != nil {
				return err
			}
			var err error
			if s, err = r.Open(512); err != nil {
				return err
			}
			ids = prompt(512)
		}
		_, err := s.Feed(ids[:64], 64)
		ids = ids[64:]
		return err
	}
	return lap, end, nil
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
