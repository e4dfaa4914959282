package bar

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/gpu/layout"
	"leasehold.dev/gpu/pool"
	"leasehold.dev/integration/scenario"
	"leasehold.dev/integration/single"
	"leasehold.dev/model"
	"leasehold.dev/model/canary"
	"leasehold.dev/protos/pagesum"
)

const (
	guardPairs  = 20
	guardRounds = 4 // each on an engine of its own
	guardAtMost = 1.01
)

// guardLoad is one kind of work: laps of so many tokens each, at the end of a context that grows from one length to another.
// Laps are short, so that most are not disturbed; a chunk of 16 tokens has many times the checks a token of the usual 512.
type guardLoad struct {
	name     string
	from, to int // rows
	step     int // tokens a lap
	laps     int // of each side in a pair
}

var (
	realLoads = []guardLoad{
		{"decode_2000", 1700, 2500, 1, 200},
		{"prefill_2000", 0, 2048, 16, 256},
	}
	canaryLoads = []guardLoad{
		{"decode_32k_canary", 31000, 35000, 1, 800},
		{"prefill_32k_canary", 28672, 36864, 16, 256},
	}
)

// upper95 is the upper 95 % bound of the median of n paired ratios, free of any distribution: the order statistic of
// rank 15 of 20 (two-sided 95.9 %, from the binomial law of the count below the median).
func upper95(ratios []float64) float64 {
	return slices.Sorted(slices.Values(ratios))[len(ratios)*3/4-1]
}

// runBenchGuards times one engine's sequences with tags and digests on and off, in ABBA order.
func runBenchGuards(ctx context.Context, e *Env) (Result, error) {
	dir, err := os.MkdirTemp("", "leasehold-guards")
	if err != nil {
		return Result{}, err
	}
	defer os.RemoveAll(dir)
	echoes, err := scenario.Setup{}.Canary(dir, uint32(canaryLoads[1].to+canary.Answer))
	if err != nil {
		return Result{}, err
	}
	fig := map[string]any{"pairs": guardPairs, "engines": guardRounds, "upper95_at_most": guardAtMost}
	met := true
	for _, part := range []struct {
		path  string
		cache string
		loads []guardLoad
	}{{e.Model, e.Cache, realLoads}, {echoes.Model, dir, canaryLoads}} {
		m, err := model.Load(part.path)
		if err != nil {
			return Result{Figures: fig}, err
		}
		times, err := e.guardTimes(ctx, m, part.cache, part.loads)
		if err == nil {
			err = pageTimes(m, fig)
		}
		if err := errors.Join(err, m.Close()); err != nil {
			return Result{Figures: fig}, err
		}
		for i, l := range part.loads {
			t := times[i]
			up := upper95(t.ratios)
			met = met && up <= guardAtMost
			on, off := median(t.on), median(t.off)
			fig[l.name] = map[string]any{"median_ratio": median(t.ratios), "upper95": up, "on_us": 1e6 * on, "off_us": 1e6 * off}
			if l.step == 1 { // a step reads each page once in every layer and kv head, and checks its tag before and after
				reads := uint32((l.from+l.to)/2/layout.PageTokens) * m.Config.Layers * m.Config.KVHeads
				fig[l.name+"_tags_ns_a_page_read"] = 1e9 * (median(t.ratios) - 1) * off / float64(reads)
			}
		}
	}
	return Result{Met: met, Figures: fig}, nil
}

// guardTimes are a load's pairs: their ratios, and each side's times in seconds a lap.
type guardTimes struct{ ratios, on, off []float64 }

func (e *Env) guardTimes(ctx context.Context, m *model.Model, cache string, loads []guardLoad) ([]guardTimes, error) {
	times := make([]guardTimes, len(loads))
	for range guardRounds {
		for i, l := range loads {
			if err := guardRound(ctx, m, cache, l, &times[i]); err != nil {
				return nil, fmt.Errorf("%s: %w", l.name, err)
			}
			e.sayf("bench-guards: %s: %d of %d pairs, median so far %.4f", l.name, len(times[i].ratios), guardPairs, median(times[i].ratios))
		}
	}
	return times, nil
}

// guardRound is a round of pairs. Both sides run on one engine and on the same pages: where memory happens to lie makes more
// of a difference than a guard.
func guardRound(ctx context.Context, m *model.Model, cache string, l guardLoad, to *guardTimes) (err error) {
	o := engine.Options{Backend: "cpu", Threads: 2, MaxTokens: 512, MaxSeqs: 2, CacheDir: cache, GuardsOff: true}
	r, err := single.Open(m, o, uint32((l.to+layout.PageTokens-1)/layout.PageTokens))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	d := &duel{load: l, runner: r, vocab: int32(m.Config.Vocab)}
	for range guardPairs / guardRounds {
		if err := d.pair(ctx, to); err != nil {
			return err
		}
	}
	return d.end()
}

// The sides of a duel.
const (
	guardsOn = iota
	guardsOff
)

// duel is a load on two sequences over the same pages of one engine, of which one has guards.
type duel struct {
	load   guardLoad
	runner *single.Runner
	vocab  int32
	seqs   [2]*single.Seq
	rows   int // of both
}

// pair lets both sides' laps alternate in the order on, off, off, on, so that what disturbs the machine disturbs both. The
// i-th laps of both do the same work at nearly the same time; the pair's ratio is the median of theirs.
func (d *duel) pair(ctx context.Context, to *guardTimes) error {
	var times [2][]float64
	for i := range d.load.laps {
		if d.seqs[guardsOn] == nil || d.rows+d.load.step > d.load.to {
			if err := d.begin(); err != nil {
				return err
			}
		}
		for k := range 2 {
			side := (i + k) % 2
			t, err := d.lap(side)
			if err := errors.Join(err, ctx.Err()); err != nil {
				return err
			}
			times[side] = append(times[side], t.Seconds())
		}
		d.rows += d.load.step
	}
	on, off := times[guardsOn], times[guardsOff]
	to.on, to.off, to.ratios = append(to.on, median(on)), append(to.off, median(off)), append(to.ratios, ratio(on, off))
	return nil
}

func (d *duel) lap(side int) (time.Duration, error) {
	tokens := d.tokens(d.load.step)
	start := time.Now()
	_, err := d.seqs[side].Feed(tokens, d.load.step)
	return time.Since(start), err
}

// begin opens both sequences anew and feeds what leads to the context's beginning.
func (d *duel) begin() (err error) {
	if err := d.end(); err != nil {
		return err
	}
	if d.seqs[guardsOn], err = d.runner.Open(d.load.to); err != nil {
		return err
	}
	if d.seqs[guardsOff], err = d.seqs[guardsOn].Twin(); err != nil {
		return err
	}
	if err := d.runner.Engine.GuardSeq(d.seqs[guardsOn].ID); err != nil {
		return err
	}
	for _, s := range d.seqs {
		if d.load.from == 0 {
			break
		}
		if _, err := s.Feed(d.tokens(d.load.from), 512); err != nil {
			return err
		}
	}
	d.rows = d.load.from
	return nil
}

func (d *duel) end() error {
	var all []error
	for _, side := range []int{guardsOff, guardsOn} { // the twin first
		if s := d.seqs[side]; s != nil {
			all = append(all, s.Close())
		}
	}
	d.seqs = [2]*single.Seq{}
	return errors.Join(all...)
}

func (d *duel) tokens(n int) []int32 {
	ids := prompt(n)
	for i := range ids {
		ids[i] %= d.vocab
	}
	return ids
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// pageTimes adds what one page costs, of so many bytes: its digest, as a broker takes it on
// arrival, and its clearing, both right after it was written.
func pageTimes(m *model.Model, fig map[string]any) error {
	l, err := layout.Of(m.Config, "cpu")
	if err != nil {
		return err
	}
	p, err := pool.New(8, l.PageBytes())
	if err != nil {
		return err
	}
	defer p.Close()
	h := l.Hash()
	keys := pagesum.Expand(h[:], h[:], l.Shape())
	var digest, zero []float64
	for i := range uint32(64) {
		page := p.Page(i % 8)
		for j := range page {
			page[j] = byte(j)
		}
		start := time.Now()
		if _, _, err := engine.PageSum(l, page, layout.PageTokens, keys); err != nil {
			return err
		}
		digest = append(digest, time.Since(start).Seconds())
		start = time.Now()
		p.Zero(i % 8)
		zero = append(zero, time.Since(start).Seconds())
	}
	fig[fmt.Sprintf("page_%d_bytes", l.PageBytes())] = map[string]any{"digest_ns": seconds(median(digest)).Nanoseconds(), "zeroing_ns": seconds(median(zero)).Nanoseconds()}
	return nil
}
