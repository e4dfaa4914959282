package decode

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"leasehold.dev/gpu/layout"
	"leasehold.dev/gpu/runner"
	"leasehold.dev/kvbroker/client"
	"leasehold.dev/mesh/audit/event"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/fault"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/proof"
)

// job is one admission with its lease.
type job struct {
	s        *Service
	began    time.Time
	a        *meshv1.Admission
	ids      []int32
	answer   *answer
	task     *runner.Task
	lease    *client.Lease
	instance []byte // of the broker that the lease is from
	layout   []byte
	life     context.Context
	end      context.CancelCauseFunc
	cancel   context.CancelFunc
	verified uint32 // rows that came from prefill

	looks     chan struct{} // closed when both brokers have looked at moved pages again, or nobody waits for it
	looked    func()        // closes it
	unsettled error         // after looks: what they met
}

func (j *job) split() bool { return j.a.Mover != meshv1.Mover_MOVER_NONE }

// moved is how many pages must come from prefill: this worker's own expectation, from the token ids alone.
func (j *job) moved() uint32 {
	if !j.split() {
		return 0
	}
	return proof.Pages(j.a.PromptTokens, 0)
}

// needed is how many pages the request may fill: the last new token's row is nobody's.
func (j *job) needed() uint32 {
	return (j.a.PromptTokens + j.a.MaxNewTokens - 1 + layout.PageTokens - 1) / layout.PageTokens
}

// reserved is how many pages the lease has or will have: those of a handover in the same pool are still the source's.
func (j *job) reserved() uint32 {
	n := uint32(len(j.lease.Pages))
	if j.a.Mover == meshv1.Mover_MOVER_LOCAL {
		n += j.moved()
	}
	return n
}

// retire runs when the engine has let go of the lease's pages.
func (j *job) retire(err error) {
	<-j.looks // pages that are given back are cleared, and could not be looked at
	ctx, cancel := context.WithTimeout(context.Background(), tellTime)
	defer cancel()
	j.s.faults(j)
	if err != nil {
		err = j.lease.Fail(ctx, err, j.task.Faults())
	} else {
		err = j.lease.Retire(ctx, true, "", j.task.Faults())
	}
	if err != nil {
		j.s.o.Log.Warn("retire", "err", err)
	}
}

// serve answers a job that holds a lease.
func (j *job) serve(send func(*decodev1.GenerateResponse) error) error {
	defer j.looked()
	moved := j.moved()
	admitted := &decodev1.Admitted{LeaseHash: j.lease.Hash(), Pages: j.reserved(), ExpectedPages: moved}
	if err := send(&decodev1.GenerateResponse{Event: &decodev1.GenerateResponse_Admitted{Admitted: admitted}}); err != nil {
		return err
	}
	seq, verdict, err := j.sequence(moved)
	if err != nil {
		return j.why(err)
	}
	j.s.o.Audit.Append(event.DecodeSaid(j.a.Tenant, verdict))
	if err := send(&decodev1.GenerateResponse{Event: &decodev1.GenerateResponse_Verdict{Verdict: verdict}}); err != nil {
		return err
	}
	stop := j.awaitLooks(seq.Verified > 0)
	defer stop()
	if err := j.task.Start(seq); err != nil {
		return j.why(err)
	}
	if err := j.stream(send); err != nil {
		return err
	}
	f := j.answer.finished(j.began)
	f.BeganUnixUs = j.task.Began().UnixMicro()
	f.GuardsOn, f.NumericsClass = j.s.host.GuardsOn(), j.s.host.Engine().NumericsClass()
	j.s.finished(j, f)
	return send(&decodev1.GenerateResponse{Event: &decodev1.GenerateResponse_Finished{Finished: f}})
}

// why prefers what ended the job's life to what that did to a call.
func (j *job) why(err error) error {
	if cause := context.Cause(j.life); cause != nil {
		return cause
	}
	return err
}

// awaitLooks waits, beside the first step, for the brokers' second look at pages that were moved. stop ends the wait.
func (j *job) awaitLooks(moved bool) (stop func()) {
	if !moved {
		j.looked()
		return func() {}
	}
	ctx, cancel := context.WithCancel(j.life)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		defer j.looked()
		j.unsettled = j.lease.AwaitSettled(ctx)
	})
	return func() {
		cancel()
		waiting.Wait()
	}
}

// stream sends tokens as they come until the task is done. None leaves before the looks are over.
func (j *job) stream(send func(*decodev1.GenerateResponse) error) error {
	checked := false
	for done := false; !done; {
		select {
		case <-j.answer.news:
		case <-j.task.Done():
			if err := j.task.Err(); err != nil {
				return j.why(j.lease.Explain(j.life, err, j.task.Faults()))
			}
			done = true
		case <-j.life.Done():
			return context.Cause(j.life)
		}
		tokens := mistold(j.answer.take())
		if !checked && (done || len(tokens) > 0) {
			if err := j.checkFed(); err != nil {
				return err
			}
			if <-j.looks; j.unsettled != nil {
				return j.why(j.unsettled)
			}
			checked = true
		}
		for _, t := range tokens {
			if err := send(&decodev1.GenerateResponse{Event: &decodev1.GenerateResponse_Tokens{Tokens: t}}); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkFed holds what went into the engine against the admission, before the first token leaves: the rows that it counted,
// and the digest over the ids that it was fed. The rows before them were verified with prefill's digest, which is of its
// own fed ids.
func (j *job) checkFed() error {
	n, fed, rows := j.a.PromptTokens, j.answer.fed, j.answer.prompt
	if (rows != n || uint64(len(fed))+uint64(j.verified) != uint64(n)) && !fault.Off(fault.Counts) {
		return errs.New(errs.Corrupt, "decode: %d rows from %d ids and %d verified rows were there for the first token, the prompt has %d",
			rows, len(fed), j.verified, n)
	}
	all := slices.Concat(j.ids[:j.verified], fed)
	if d := proof.PromptDigest(j.a.Nonce, j.a.Tenant, j.a.ModelRevision, all); !bytes.Equal(d, j.a.PromptDigest) && !fault.Off(fault.PromptDigest) {
		return errs.New(errs.Corrupt, "decode: the ids that were fed have digest %x, the admission's is %x", d, j.a.PromptDigest)
	}
	return nil
}

// sequence is what the engine runs on, and what was verified of it. A split job waits here for its pages.
func (j *job) sequence(moved uint32) (runner.Sequence, *meshv1.DecodeVerdict, error) {
	m := j.s.host.Model()
	v := &meshv1.DecodeVerdict{
		AdmissionId: j.a.Id, LeaseHash: j.lease.Hash(), ModelRevision: m.Revision[:], LayoutHash: j.layout,
		PromptDigest: proof.PromptDigest(j.a.Nonce, j.a.Tenant, m.Revision[:], j.ids), Mover: j.a.Mover, Unsplit: true,
		Instance: j.instance, Epoch: j.lease.Epoch,
	}
	seq := runner.Sequence{Pages: j.lease.Pages, Tags: j.lease.Tags, Tokens: j.ids, Logits: true, Handler: j.answer}
	if !j.split() {
		return seq, v, nil
	}
	if j.early(&seq, v, moved) {
		return seq, misjudged(v), nil
	}
	owned, err := j.lease.AwaitOwned(j.life)
	if err != nil {
		return seq, nil, err
	}
	if err := j.check(owned, moved); err != nil {
		return seq, nil, err
	}
	c := owned.Completion()
	v.SourceLeaseHash, v.SourceInstance, v.SourceEpoch, v.Root = c.Lease, c.Instance, c.Epoch, c.Root
	v.FromToken, v.Rows, v.Pages, v.ExpectedPages = owned.From(), owned.Rows(), c.Pages, moved
	v.BytesMoved, v.Unsplit = owned.BytesMoved(), false
	v.TransferUs, v.VerifyUs = uint64(owned.TransferTime().Microseconds()), uint64(owned.VerifyTime().Microseconds())
	j.verified = owned.From() + owned.Rows()
	seq.Verified = j.verified
	seq.Pages, seq.Tags, seq.StartDigest = owned.Pages(), owned.Tags(), owned.StartDigest()
	seq.Tokens = misfed(j.ids[seq.Verified:])
	return seq, misjudged(v), nil
}

// check compares what the broker verified with this worker's own expectation, which comes from the token ids alone.
func (j *job) check(o *client.Owned, moved uint32) error {
	n := j.a.PromptTokens
	c := o.Completion()
	switch {
	case (o.From() != 0 || o.Rows() != n-1 || o.ExpectedPages() != moved) && !fault.Off(fault.Counts):
		return errs.New(errs.Corrupt, "decode: rows [%d, %d+%d) in %d pages were verified, the prompt needs [0, %d) in %d",
			o.From(), o.From(), o.Rows(), o.ExpectedPages(), n-1, moved)
	case (c.GetRows() != n-1 || c.GetPages() != moved || len(c.GetDigests()) != int(moved)) && !fault.Off(fault.Counts):
		return errs.New(errs.Corrupt, "decode: the Completion has %d rows in %d pages with %d digests, the prompt needs %d in %d",
			c.GetRows(), c.GetPages(), len(c.GetDigests()), n-1, moved)
	case !bytes.Equal(c.GetAdmissionId(), j.a.Id) || !bytes.Equal(c.GetPromptDigest(), j.a.PromptDigest) && !fault.Off(fault.PromptDigest):
		return errs.New(errs.Corrupt, "decode: the Completion is of another admission or prompt")
	case len(o.Pages()) != int(j.needed()) || len(o.Tags()) != len(o.Pages()):
		return errs.New(errs.Corrupt, "decode: %d pages with %d tags are owned, %d are needed", len(o.Pages()), len(o.Tags()), j.needed())
	case ((n-1)%layout.PageTokens != 0) != (o.StartDigest() != nil):
		return errs.New(errs.Corrupt, "decode: %d rows, and a start digest: %v", n-1, o.StartDigest() != nil)
	}
	return nil
}
