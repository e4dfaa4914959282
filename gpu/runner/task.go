package runner

import (
	"time"

	"leasehold.dev/gpu/batch"
	"leasehold.dev/gpu/engine"
	"leasehold.dev/gpu/pool"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/pagesum"
)

// Request asks for a place in the queue.
type Request struct {
	Tenant   string
	Tokens   uint32 // prompt tokens to compute, as far as known
	Deadline time.Time
}

// Sequence is what a task runs on: pages with the tags that they were granted with, and the tokens to append first.
type Sequence struct {
	Verified    uint32 // rows that are there
	Pages       []uint32
	Tags        []pool.Tag
	StartDigest *pagesum.Digest // of the last verified page when it is partial
	Tokens      []int32         // at least 1; not changed, and read until the task is done
	Logits      bool            // whether the handler wants the logits of the newest token
	Handler     Handler
}

// Handler decides how a sequence goes on. Step is called on the runner's loop after each step that appended to the
// sequence, and must not block. When o.Last is set it returns the next token to append, or more=false to end; an error
// ends the task with it. What it returns for other steps is ignored, but for an error.
type Handler interface {
	Step(o Outcome) (next int32, more bool, err error)
}

// Outcome is one sequence's part of a step. Its slices are valid during the call.
type Outcome struct {
	Fed         []int32             // ids that were appended
	Length      uint32              // rows appended so far, counted by the engine
	Pages       []engine.PageDigest // of the pages that were appended to
	Last        bool                // no token is left to append
	Logits      []float32           // when Last and asked for
	LogitDigest pagesum.Digest
}

// Task is one sequence in a runner.
type Task struct {
	r    *Runner
	id   batch.ID
	pool *Pool
	done chan struct{}

	// Guarded by r.mu.
	ended    bool
	inflight bool // in the step that is running
	opened   bool
	began    time.Time // of its first step

	// Of the loop; readable by anyone once done is closed.
	seq       engine.SeqID
	sq        Sequence
	fed       int  // tokens of sq.Tokens that were planned
	prompting bool // the step at hand takes from sq.Tokens
	next      [1]int32
	pages     []engine.PageDigest
	faults    []engine.Fault
	length    uint32
	err       error // written under r.mu
}

// Start makes an admitted task run; its error is a bug of the caller, or says that the task has ended already.
func (t *Task) Start(s Sequence) error {
	r := t.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.ended {
		return t.err
	}
	if len(s.Tokens) == 0 || s.Handler == nil {
		return errs.New(errs.Internal, "runner: start with %d tokens and handler %T", len(s.Tokens), s.Handler)
	}
	if err := r.plan.Start(t.id, s.Verified, uint32(len(s.Tokens))); err != nil {
		return err
	}
	t.sq, t.length = s, s.Verified
	r.poke()
	return nil
}

// Cancel ends the task with err, if it has not ended; Done follows once the engine is through with it.
func (t *Task) Cancel(err error) {
	t.r.mu.Lock()
	defer t.r.mu.Unlock()
	t.r.end(t, err)
}

// Done is closed when the task has ended and no kernel will touch its pages again.
func (t *Task) Done() <-chan struct{} { return t.done }

// Err is why the task ended: nil when its handler ended it. Call it after Done.
func (t *Task) Err() error { return t.err }

// Faults are the fault records of the task's sequence. Call it after Done.
func (t *Task) Faults() []engine.Fault { return t.faults }

// Began is when the task's first step began; zero: none did. Call it after Done.
func (t *Task) Began() time.Time { return t.began }

// Length is the engine's count of rows, the verified ones included. Call it after Done.
func (t *Task) Length() uint32 { return t.length }
