package runner

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"leasehold.dev/gpu/batch"
	"leasehold.dev/gpu/engine"
	"leasehold.dev/gpu/pool"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/fault"
)

// Options of a runner.
type Options struct {
	Limits    batch.Limits
	StepLimit time.Duration    // a step that takes longer makes Healthy fail; default a minute
	Observe   func(Stats)      // called on the loop after each step; nil: nobody looks
	Now       func() time.Time // default time.Now
}

// Stats of one step.
type Stats struct {
	Prompt, Decode int // tokens
	Took           time.Duration
	Faults         []engine.Fault // valid during the call
}

// Runner runs the tasks of one engine. Make one with New, and run it with Run.
type Runner struct {
	eng  *engine.Engine
	o    Options
	wake chan struct{}
	done chan struct{} // closed when Run has ended
	beat heartbeat

	mu      sync.Mutex
	plan    *batch.Planner
	tasks   map[batch.ID]*Task
	closing []*Task  // ended; the loop closes their sequences
	chores  []func() // for the loop, after closing
	last    batch.ID
	stopped error // why nothing can be admitted any more

	// Of the loop.
	open  map[engine.SeqID]*Task
	batch []planned
	work  []engine.Work
}

// errDeadline is DEADLINE_EXCEEDED at the edge.
var errDeadline = fmt.Errorf("request: the deadline has passed: %w", context.DeadlineExceeded)

// planned is one item of the step at hand.
type planned struct {
	t    *Task
	item batch.Item
}

// New makes a runner for e. It does not own e: close it after Run has returned.
func New(e *engine.Engine, o Options) (*Runner, error) {
	p, err := batch.New(o.Limits)
	if err != nil {
		return nil, err
	}
	o.StepLimit = cmp.Or(o.StepLimit, time.Minute)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Observe == nil {
		o.Observe = func(Stats) {}
	}
	r := &Runner{
		eng: e, o: o, plan: p, wake: make(chan struct{}, 1), done: make(chan struct{}),
		tasks: map[batch.ID]*Task{}, open: map[engine.SeqID]*Task{},
	}
	r.beat.idle(o.Now())
	return r, nil
}

// Pool is a page pool that is attached to the engine.
type Pool struct {
	h    *engine.Pool
	gone error // guarded by Runner.mu; why it takes no more tasks
}

// Attach makes m usable. It waits for the step that is running. m must stay mapped until Detach has returned.
func (r *Runner) Attach(m *pool.Mapping) (*Pool, error) {
	p := &Pool{}
	var err error
	if stopped := r.onLoop(func() { p.h, err = r.eng.Attach(m) }); stopped != nil {
		return nil, stopped
	}
	return p, err
}

// Detach ends every task of p with why, at once, and returns when the engine has let go of p's memory.
func (r *Runner) Detach(p *Pool, why error) error {
	r.mu.Lock()
	p.gone = why
	r.endAll(func(t *Task) bool { return t.pool == p }, why)
	r.mu.Unlock()
	var err error
	if stopped := r.onLoop(func() { err = p.h.Close() }); stopped != nil {
		return p.h.Close() // the loop has ended: nobody else calls the engine
	}
	return err
}

// Admit takes a place in the queue for a task on p. A full queue is Exhausted.
func (r *Runner) Admit(p *Pool, q Request) (*Task, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := cmp.Or(r.stopped, p.gone); err != nil {
		return nil, err
	}
	a := batch.Arrival{ID: r.last + 1, Tenant: q.Tenant, Tokens: q.Tokens}
	if !q.Deadline.IsZero() {
		a.Deadline = q.Deadline.UnixNano()
	}
	if err := r.plan.Admit(a); err != nil {
		return nil, err
	}
	r.last++
	t := &Task{r: r, id: a.ID, pool: p, done: make(chan struct{})}
	r.tasks[a.ID] = t
	return t, nil
}

// Load is what waits and runs now.
func (r *Runner) Load() batch.Load {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.plan.Load()
}

// Healthy says whether the loop turns: an error when it has stopped, has not come round for a while, or has been in one
// step for longer than the step limit.
func (r *Runner) Healthy() error {
	r.mu.Lock()
	stopped := r.stopped
	r.mu.Unlock()
	return cmp.Or(stopped, r.beat.check(r.o.Now(), r.o.StepLimit))
}

// onLoop runs f on the loop's goroutine and waits for it; an error means that f has not run and never will.
func (r *Runner) onLoop(f func()) error {
	ran := make(chan struct{})
	r.mu.Lock()
	if r.stopped != nil {
		r.mu.Unlock()
		<-r.done
		return r.stopped
	}
	r.chores = append(r.chores, func() { f(); close(ran) })
	r.poke()
	r.mu.Unlock()
	<-ran
	return nil
}

// end ends t once. r.mu is held.
func (r *Runner) end(t *Task, err error) {
	if t.ended {
		return
	}
	t.ended, t.err = true, err
	r.plan.End(t.id)
	delete(r.tasks, t.id)
	if t.opened || t.inflight {
		r.closing = append(r.closing, t)
		r.poke()
		return
	}
	close(t.done)
}

// endAll ends tasks oldest first. r.mu is held.
func (r *Runner) endAll(which func(*Task) bool, why error) {
	var ids []batch.ID
	for id, t := range r.tasks {
		if which(t) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		r.end(r.tasks[id], why)
	}
}

func (r *Runner) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// stop refuses all that comes, ends all that is there, and does what waits for the loop.
func (r *Runner) stop() {
	r.mu.Lock()
	r.stopped = errs.New(errs.Unavailable, "worker: the engine loop has stopped")
	r.endAll(func(*Task) bool { return true }, r.stopped)
	r.mu.Unlock()
	for r.tidy() {
	}
	close(r.done)
}

// Run turns the loop until ctx ends. Call it once.
func (r *Runner) Run(ctx context.Context) {
	defer r.stop()
	defer context.AfterFunc(ctx, r.poke)()
	for ctx.Err() == nil {
		r.beat.idle(r.o.Now())
		fault.At(fault.RunnerLoop)
		switch {
		case r.tidy():
		case r.choose():
			r.step()
		default:
			r.rest(ctx)
		}
	}
}

// rest waits until there may be something to do.
func (r *Runner) rest(ctx context.Context) {
	t := time.NewTimer(beatEvery)
	defer t.Stop()
	select {
	case <-r.wake:
	case <-t.C:
	case <-ctx.Done():
	}
}
