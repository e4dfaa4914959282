package runner

import (
	"leasehold.dev/gpu/engine"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/fault"
)

// tidy closes the sequences of ended tasks, and then does the chores; it says whether there was any.
func (r *Runner) tidy() bool {
	r.mu.Lock()
	closing, chores := r.closing, r.chores
	r.closing, r.chores = nil, nil
	r.mu.Unlock()
	for _, t := range closing {
		if t.opened {
			delete(r.open, t.seq)
			// An engine that refuses to close a sequence has no such sequence: nothing touches the pages either way.
			_ = r.eng.CloseSeq(t.seq)
		}
		close(t.done)
	}
	for _, do := range chores {
		do()
	}
	return len(closing)+len(chores) > 0
}

// choose plans the next step and says whether there is one. It plans nothing while sequences wait to be closed: they
// still hold the engine's slots.
func (r *Runner) choose() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range r.plan.Expire(r.o.Now().UnixNano()) {
		r.end(r.tasks[id], errDeadline)
	}
	r.batch = r.batch[:0]
	if len(r.closing) > 0 {
		return false
	}
	for _, item := range r.plan.Plan() {
		t := r.tasks[item.ID]
		t.inflight = true
		r.batch = append(r.batch, planned{t, item})
	}
	return len(r.batch) > 0
}

// step opens what is new, runs the step, and applies its outcome.
func (r *Runner) step() {
	r.openNew()
	r.work = r.work[:0]
	var stats Stats
	for _, p := range r.batch {
		tokens := p.t.take(int(p.item.Count))
		w := engine.Work{Seq: p.t.seq, Pos: p.item.Pos, Tokens: tokens}
		if p.item.Last && p.t.sq.Logits {
			w.Want = engine.Last
		}
		if p.t.prompting {
			stats.Prompt += len(tokens)
		} else {
			stats.Decode += len(tokens)
		}
		r.work = append(r.work, w)
	}
	if len(r.work) == 0 {
		return
	}
	began := r.o.Now()
	r.beat.begin(began)
	r.misplan()
	out, err := r.eng.Step(r.work)
	stats.Took = r.o.Now().Sub(began)
	r.beat.idle(r.o.Now())
	if err != nil {
		r.fail(err)
	} else {
		stats.Faults = out.Faults
		r.apply(out)
	}
	r.o.Observe(stats)
}

// openNew opens the sequences that are in a step for the first time, and drops those that cannot be.
func (r *Runner) openNew() {
	kept := r.batch[:0]
	for _, p := range r.batch {
		t := p.t
		if !t.opened {
			seq, err := t.pool.h.OpenSeq(t.sq.Verified, t.sq.Pages, t.sq.Tags, t.sq.StartDigest)
			if err != nil {
				r.settle(t, func() { r.end(t, errs.Mark(err, errs.Internal)) })
				continue
			}
			t.seq = seq
			r.open[seq] = t
			r.mu.Lock()
			t.opened, t.began = true, r.o.Now()
			r.mu.Unlock()
		}
		kept = append(kept, p)
	}
	r.batch = kept
}

// fail ends every task of a step that the engine refused.
func (r *Runner) fail(err error) {
	for _, p := range r.batch {
		r.settle(p.t, func() { r.end(p.t, errs.Mark(err, errs.Internal)) })
	}
}

// settle takes t out of the running step and does f, both under the lock.
func (r *Runner) settle(t *Task, f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t.inflight = false
	f()
}

// gone says whether t was ended while its step ran: its handler hears no more.
func (r *Runner) gone(t *Task) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return t.ended
}

func (r *Runner) apply(out *engine.Step) {
	for _, p := range r.batch {
		p.t.pages = p.t.pages[:0]
	}
	for _, d := range out.Pages {
		if t := r.open[d.Seq]; t != nil {
			t.pages = append(t.pages, d)
		}
	}
	for _, f := range out.Faults {
		if t := r.open[f.Seq]; t != nil {
			t.faults = append(t.faults, f)
		}
	}
	for i, p := range r.batch {
		if r.gone(p.t) {
			continue
		}
		next, more, err := p.t.judge(p, r.work[i].Tokens, out.Results[i])
		r.settle(p.t, func() {
			switch {
			case p.t.ended:
			case err != nil:
				r.end(p.t, err)
			case !p.item.Last:
			case !more:
				r.end(p.t, nil)
			default:
				p.t.next[0] = next
				if err := r.plan.Feed(p.t.id); err != nil {
					r.end(p.t, err)
				}
			}
		})
	}
}

// take returns the next n tokens to append.
func (t *Task) take(n int) []int32 {
	if t.prompting = t.fed < len(t.sq.Tokens); !t.prompting {
		return t.next[:]
	}
	t.fed += n
	return t.sq.Tokens[t.fed-n : t.fed]
}

// judge checks a result, and asks the handler only when nothing is wrong with it.
func (t *Task) judge(p planned, fed []int32, res engine.Result) (next int32, more bool, err error) {
	t.length = res.Length
	want := p.item.Pos + p.item.Count
	switch {
	case res.Faults > 0 || len(t.faults) > 0:
		return 0, false, errs.New(errs.Corrupt, "tag check: %d fault records for a step at token %d", max(int(res.Faults), len(t.faults)), p.item.Pos)
	case res.Length != want && !fault.Off(fault.Counts):
		return 0, false, errs.New(errs.Corrupt, "engine: %d rows are appended, the plan has %d", res.Length, want)
	case res.Bad:
		return 0, false, errs.New(errs.Corrupt, "engine: logits at token %d are not finite", want-1)
	}
	o := Outcome{Fed: fed, Length: res.Length, Pages: t.pages, Last: p.item.Last}
	if p.item.Last && t.sq.Logits {
		if len(res.Logits) != 1 || len(res.LogitDigests) != 1 {
			return 0, false, errs.New(errs.Internal, "engine: %d rows of logits, want 1", len(res.Logits))
		}
		o.Logits, o.LogitDigest = res.Logits[0], res.LogitDigests[0]
	}
	return t.sq.Handler.Step(o)
}
