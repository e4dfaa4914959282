package bar

import (
	"context"
	"errors"
	"slices"
	"time"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/gpu/layout"
	"leasehold.dev/integration/single"
	"leasehold.dev/model"
	"leasehold.dev/protos/pagesum"
)

const (
	guardPairs   = 20
	guardRounds  = 4 // each on engines of its own
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
	fig := map[string]any{"pairs": guardPairs, "context": guardContext, "engines": guardRounds}
	var decode, prefill guardTimes
	for round := range guardRounds {
		if err := e.guardRound(ctx, m, round%2 == 1, &decode, &prefill); err != nil {
			return Result{Figures: fig}, err
		}
		e.sayf("bench-guards: %d of %d pairs: decode %.4f, prefill %.4f (medians so far)", len(decode.ratios), guardPairs, median(decode.ratios), median(prefill.ratios))
	}
	met := true
	for name, t := range map[string]guardTimes{"decode": decode, "prefill": prefill} {
		up := upper95(t.ratios)
		fig[name+"_median_ratio"], fig[name+"_upper95"] = median(t.ratios), up
		fig[name+"_on_us"], fig[name+"_off_us"] = seconds(median(t.on)).Microseconds(), seconds(median(t.off)).Microseconds()
		met = met && up <= guardAtMost
	}
	sum, err := pageSumTime(m)
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

// guardTimes are the pairs' ratios and each side's times, in seconds.
type guardTimes struct{ ratios, on, off []float64 }

// guardRound opens both engines anew, so that where memory happens to lie is not taken for the cost of a guard.
func (e *Env) guardRound(ctx context.Context, m *model.Model, offFirst bool, decode, prefill *guardTimes) error {
	var runners [2]*single.Runner // on, off
	for i := range runners {
		if offFirst {
			i = 1 - i
		}
		r, err := single.Open(m, engine.Options{Backend: "cpu", Threads: 2, MaxTokens: 512, MaxSeqs: 2, CacheDir: e.Cache, GuardsOff: i == 1}, 40)
		if err != nil {
			return err
		}
		defer r.Close()
		runners[i] = r
	}
	return errors.Join(
		abba(ctx, runners, decodeLaps, guardDecode(), decode),
		abba(ctx, runners, prefillLaps, guardPrefill, prefill))
}

// abba takes pairs of laps: within a pair, both runners' laps alternate in the order on, off, off, on, so that what
// disturbs the machine disturbs both. The i-th laps of both do the same work at nearly the same time; a pair's ratio is
// the median of theirs.
func abba(ctx context.Context, runners [2]*single.Runner, laps int, start func(*single.Runner) (lap func() error, end func() error, err error), to *guardTimes) error {
	for range guardPairs / guardRounds {
		var lap, end [2]func() error
		for k, r := range runners {
			var err error
			if lap[k], end[k], err = start(r); err != nil {
				return err
			}
		}
		var times [2][]float64
		for i := range 2 * laps {
			k := (i + 1) / 2 % 2
			began := time.Now()
			if err := lap[k](); err != nil {
				return err
			}
			times[k] = append(times[k], time.Since(began).Seconds())
		}
		if err := errorsFirst(end[0](), end[1](), ctx.Err()); err != nil {
			return err
		}
		to.on, to.off, to.ratios = append(to.on, median(times[0])), append(to.off, median(times[1])), append(to.ratios, ratio(times[0], times[1]))
	}
	return nil
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
			if _, err := s.Feed(prompt(guardContext-guardPairs/guardRounds*decodeLaps), 512); err != nil {
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
func pageSumTime(m *model.Model) (time.Duration, error) {
	l, err := layout.Of(m.Config, "cpu")
	if err != nil {
		return 0, err
	}
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
