package worker

import (
	"context"
	"errors"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"leasehold.dev/gpu/layout"
	"leasehold.dev/gpu/pool"
	"leasehold.dev/gpu/runner"
	"leasehold.dev/protos/errs"
)

// warmLengths are the prompts of a warm-up, in tokens, a round after the other, and the shortest time of each length counts:
// the first prompt finds caches cold, and a machine on which others run is slower than it will be, which would make honest
// prompts look too fast. For the same reason what counts is the time that the threads ran, not that in which they waited for
// a core. warmTime is the most that a warm-up may take: what was measured by then is fitted.
var warmLengths = []uint32{64, 128, 256, 64, 128, 256}

const warmTime = 10 * time.Second

// warmUp measures the engine alone, on pages of this process's own that no tenant ever sees. The engine's loop runs already,
// and nothing else uses it.
func (h *Host[B]) warmUp(ctx context.Context) (f Fit, err error) {
	longest := min(warmLengths[len(warmLengths)-1], h.model.Config.ContextLength-1)
	pages := (longest + layout.PageTokens - 1) / layout.PageTokens
	own, err := pool.New(pages, h.engine.Layout().PageBytes())
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, own.Close()) }()
	mem, tags := own.Files()
	mapping, err := pool.Map(mem, tags, pages, own.PageBytes())
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, mapping.Close()) }()
	attached, err := h.runner.Attach(mapping)
	if err != nil {
		return f, err
	}
	defer func() {
		err = errors.Join(err, h.runner.Detach(attached, errs.New(errs.Unavailable, "the warm-up is over")))
	}()
	var samples []Sample
	began := time.Now()
	for i, m := range warmLengths {
		if m > longest {
			continue
		}
		if time.Since(began) > warmTime {
			break
		}
		took, err := h.computeAlone(ctx, attached, own, m, uint64(i+1))
		if err != nil {
			return f, err
		}
		samples = shortest(samples, Sample{m, took})
	}
	return fit(samples), nil
}

// shortest keeps one sample of each length.
func shortest(samples []Sample, s Sample) []Sample {
	for i := range samples {
		if samples[i].Tokens == s.Tokens {
			samples[i].Took = min(samples[i].Took, s.Took)
			return samples
		}
	}
	return append(samples, s)
}

// computeAlone is the time of one prompt of m tokens. generation tags its pages.
func (h *Host[B]) computeAlone(ctx context.Context, p *runner.Pool, own *pool.Pool, m uint32, generation uint64) (time.Duration, error) {
	s := runner.Sequence{Tokens: make([]int32, m), Handler: &span{}}
	for i := range s.Tokens {
		s.Tokens[i] = int32(i % h.model.Tokenizer.Vocab())
	}
	for i := range (m + layout.PageTokens - 1) / layout.PageTokens {
		own.Zero(i)
		own.StoreTag(i, pool.MakeTag(1, generation))
		s.Pages, s.Tags = append(s.Pages, i), append(s.Tags, own.LoadTag(i))
	}
	task, err := h.runner.Admit(p, runner.Request{Tenant: "warm-up", Tokens: m})
	if err != nil {
		return 0, err
	}
	began := time.Now()
	ran, err := cpuTime()
	if err != nil {
		task.Cancel(err)
		return 0, err
	}
	if err := task.Start(s); err != nil {
		task.Cancel(err)
		return 0, err
	}
	select {
	case <-task.Done():
	case <-ctx.Done():
		task.Cancel(context.Cause(ctx))
		<-task.Done()
	}
	wall := time.Since(began)
	now, err := cpuTime()
	return took(wall, now-ran, h.conf.Threads), errors.Join(task.Err(), err)
}

// took is the wall time of a computation, or what each of its threads (0: all that there are) ran, if that is less: they also
// wait for each other, so that it errs towards too short a time, which finds less and blames nobody.
func took(wall, cpu time.Duration, threads int) time.Duration {
	if threads == 0 {
		threads = runtime.GOMAXPROCS(0) // as the engine does
	}
	return min(wall, cpu/time.Duration(threads))
}

// cpuTime is how long this process' threads have run, all together.
func cpuTime() (time.Duration, error) {
	var u unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), errs.Mark(err, errs.Internal)
}

// span is a handler that wants nothing.
type span struct{}

// Step implements runner.Handler.
func (*span) Step(runner.Outcome) (int32, bool, error) { return 0, false, nil }
