package prefill

import (
	"context"
	"time"

	"leasehold.dev/gpu/runner"
	"leasehold.dev/kvbroker/client"
	"leasehold.dev/mesh/audit/event"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/fault"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/proof"
)

// job is one admission with its lease.
type job struct {
	s        *Service
	facts    facts
	a        *meshv1.Admission
	ids      []int32
	task     *runner.Task
	lease    *client.Lease
	pages    *pages
	life     context.Context
	end      context.CancelCauseFunc
	cancel   context.CancelFunc
	through  chan struct{} // closed when the request's goroutine will not touch the lease any more
	finished bool          // the lease ended in Finish
}

// sealBytes is how much is sealed and sent together: a page of a real model at once, the small ones of a small model by the
// dozen, since each message costs the same. What is left at the end goes with Finish, and takes no longer than one page.
const sealBytes = 256 << 10

// facts of the broker that the lease is from.
type facts struct {
	instance []byte
	layout   []byte
}

func (s *Service) newJob(ctx context.Context, cancel context.CancelFunc, l *link, a *meshv1.Admission, ids []int32,
	task *runner.Task, lease *client.Lease) *job {
	j := &job{
		s: s, facts: facts{l.Facts.Instance, l.Facts.LayoutHash}, a: a, ids: ids, task: task, lease: lease,
		pages: newPages(), cancel: cancel, through: make(chan struct{}),
	}
	j.pages.sum = s.atRest(l, lease)
	j.life, j.end = l.Bind(ctx, task, lease, j.after)
	return j
}

// after runs when the engine has let go of the lease's pages: a lease that was not finished is retired.
func (j *job) after(err error) {
	<-j.through
	j.s.faults(j)
	if j.finished {
		return
	}
	if err == nil {
		err = context.Cause(j.life)
	}
	if err == nil {
		err = errs.New(errs.Internal, "prefill: ended without a word")
	}
	ctx, cancel := context.WithTimeout(context.Background(), tellTime)
	defer cancel()
	if err := j.lease.Fail(ctx, err, j.task.Faults()); err != nil {
		j.s.log.Warn("retire", "err", err)
	}
}

func (j *job) run() (*meshv1.PrefillVerdict, error) {
	defer j.cancel()
	defer close(j.through)
	v, err := j.compute()
	if err != nil {
		j.s.failed(j.a, j.lease, err)
	} else {
		j.s.audit.Append(event.PrefillSaid(j.a.Tenant, v))
	}
	j.end(err)
	return v, err
}

func (j *job) compute() (*meshv1.PrefillVerdict, error) {
	n := uint32(len(j.ids))
	last := proof.Pages(n, 0) - 1
	if j.lease.From != 0 {
		return nil, errs.New(errs.Invalid, "prefill: the Pull asks for rows from token %d on; no prefix is held here", j.lease.From)
	}
	together := int(max(1, sealBytes/j.s.host.Engine().Layout().PageBytes()))
	began := time.Now()
	if err := j.task.Start(runner.Sequence{Pages: j.lease.Pages, Tags: j.lease.Tags, Tokens: j.ids[:n-1], Handler: j.pages}); err != nil {
		return nil, err
	}
	for {
		select {
		case <-j.pages.news:
			if j.over() { // then Finish takes what is left, in one call
				continue
			}
			if full := missealed(j.pages.take(last, together)); len(full) > 0 {
				if err := j.lease.Seal(j.life, full); err != nil {
					return nil, j.why(err)
				}
			}
		case <-j.task.Done():
			if err := j.task.Err(); err != nil {
				return nil, j.why(j.lease.Explain(j.life, err, j.task.Faults()))
			}
			return j.finish(began, time.Now())
		case <-j.life.Done():
			return nil, context.Cause(j.life)
		}
	}
}

// over says that the engine is through, so that the next look at the task sees its end.
func (j *job) over() bool {
	select {
	case <-j.task.Done():
		return j.task.Err() == nil
	default:
		return false
	}
}

// why prefers what ended the job's life to what that did to a call.
func (j *job) why(err error) error {
	if cause := context.Cause(j.life); cause != nil {
		return cause
	}
	return err
}

// finish compares what was counted with what was asked for, and hands the last page over.
func (j *job) finish(began, ended time.Time) (*meshv1.PrefillVerdict, error) {
	n := j.a.PromptTokens
	pages, rows, fed := j.pages.counted()
	wrong := rows != j.task.Length() || rows != n-1 || pages != proof.Pages(n, 0) || len(fed) != int(rows)
	if wrong && !fault.Off(fault.Counts) {
		return nil, errs.New(errs.Corrupt, "prefill: %d rows in %d pages from %d ids were appended, the engine has %d, the prompt needs %d in %d",
			rows, pages, len(fed), j.task.Length(), n-1, proof.Pages(n, 0))
	}
	fault.At(fault.PrefillFinish)
	done, err := j.lease.Finish(j.life, missealed(j.pages.rest()), rows)
	if err != nil {
		return nil, j.why(err)
	}
	j.finished = true
	if (done.Pages != pages || done.Rows != rows) && !fault.Off(fault.Counts) {
		return nil, errs.New(errs.Corrupt, "prefill: %d rows in %d pages were appended, the broker has %d in %d", rows, pages, done.Rows, done.Pages)
	}
	m := j.s.host.Model()
	return misspoken(&meshv1.PrefillVerdict{
		AdmissionId: j.a.Id, LeaseHash: j.lease.Hash(), Instance: j.facts.instance, Epoch: j.lease.Epoch,
		ModelRevision: m.Revision[:], LayoutHash: j.facts.layout,
		PromptDigest: proof.PromptDigest(j.a.Nonce, j.a.Tenant, m.Revision[:], append(fed, j.ids[len(j.ids)-1])),
		FromToken:    j.lease.From, Rows: rows, Pages: pages, Root: done.Root, ComputeUs: uint64(ended.Sub(began).Microseconds()),
		SpanUs: uint64(ended.Sub(j.task.Began()).Microseconds()), EndedUnixUs: ended.UnixMicro(),
	}), nil
}
