package flow

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"leasehold.dev/mesh/audit/event"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/fault"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/proof"
	"leasehold.dev/router/choose"
	"leasehold.dev/router/reconcile"
	"leasehold.dev/router/record"
	"leasehold.dev/router/verdict"
)

// attempt is one admission on one route.
type attempt struct {
	r      *Runner
	job    Job
	route  choose.Route
	adm    *meshv1.Admission
	signed *meshv1.SignedAdmission
	start  time.Time
	cancel context.CancelCauseFunc
	decode *decodeCall
	sealed atomic.Bool // P's verdict is here
	done   []func()    // give back the use counts

	admitted *decodev1.Admitted // with both verdicts: what the receipt says
	p        *meshv1.PrefillVerdict
	d        *meshv1.DecodeVerdict
	view     reconcile.View
}

// errOver cancels the other half once one has failed. It is a cancel of ours, and nobody's bug.
var errOver = fmt.Errorf("the other half of the request has failed: %w", context.Canceled)

// late ends an attempt in which a worker was over one of our limits. Its kind is Unavailable.
type late struct {
	worker, what string
	after        time.Duration
}

func (l *late) Error() string {
	return fmt.Sprintf("decode worker %s sent no %s within %v", l.worker, l.what, l.after)
}

func isLate(ctx context.Context) bool {
	var l *late
	return errors.As(context.Cause(ctx), &l)
}

// attempt also returns the admission's id, once there is one.
func (r *Runner) attempt(ctx context.Context, job Job, route choose.Route, n int) (*Stream, string, error) {
	a := &attempt{r: r, job: job, route: route, start: time.Now()}
	if err := a.admit(ctx); err != nil {
		return nil, "", err
	}
	r.Audit.Append(a.record(n))
	a.note(func(c *record.Choice) { *c = a.blank(c.Index, n) })
	r.Meter.Route(string(route.Why))
	ctx, a.cancel = context.WithCancelCause(ctx)
	a.done = append(a.done, r.Fleet.Use("decode", route.Decode.ID))
	if route.Prefill != nil {
		a.done = append(a.done, r.Fleet.Use("prefill", route.Prefill.ID))
	}
	first, finished, err := a.run(ctx)
	r.Witness.Saw(a.view, err == nil)
	if err != nil {
		a.close()
		return nil, hexOf(a.adm.Id), err
	}
	now := time.Now()
	a.note(func(c *record.Choice) { c.FirstTokenMS = record.MS(now.Sub(a.start)) })
	return &Stream{a: a, ctx: ctx, tokens: first, finished: finished, first: now, Route: route}, hexOf(a.adm.Id), nil
}

// record is what the audit log says of the ticket, before anybody has it.
func (a *attempt) record(n int) event.Admission {
	return event.Admission{Request: a.job.Request, Admission: hexOf(a.adm.Id), Tenant: a.adm.Tenant, Attempt: n, Route: string(a.route.Why),
		Mover: moverName(a.adm.Mover), Prefill: a.adm.Prefill, PrefillBroker: a.adm.PrefillBroker, Decode: a.adm.Decode,
		DecodeBroker: a.adm.DecodeBroker, PromptTokens: a.adm.PromptTokens, MaxNewTokens: a.adm.MaxNewTokens, PromptDigest: hexOf(a.adm.PromptDigest),
		Internal: a.job.Entry == nil}
}

// admit makes and signs the ticket.
func (a *attempt) admit(ctx context.Context) error {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(a.r.Times.Request)
	}
	d := a.route.Decode
	a.adm = &meshv1.Admission{
		Id: proof.NewID(), Tenant: a.job.Tenant, Model: a.r.ModelName, ModelRevision: []byte(a.r.Model.Revision),
		PromptTokens: uint32(len(a.job.IDs)), MaxNewTokens: a.route.MaxNew, Nonce: proof.NewID(),
		Decode: d.ID, DecodeBroker: d.Broker, Mover: a.route.Mover, DeadlineUnixMs: deadline.UnixMilli(),
	}
	if p := a.route.Prefill; p != nil {
		a.adm.Prefill, a.adm.PrefillBroker = p.ID, p.Broker
	}
	a.adm.PromptDigest = proof.PromptDigest(a.adm.Nonce, a.adm.Tenant, a.adm.ModelRevision, a.job.IDs)
	misadmit(a.adm)
	var err error
	a.signed, err = proof.Sign(a.r.Key, a.adm)
	return err
}

// compare is the inline guard. Tests of its detector switch it off.
var compare = verdict.Compare

// run goes as far as the first token, or as Finished when there is none.
func (a *attempt) run(ctx context.Context) (*decodev1.Tokens, *decodev1.Finished, error) {
	a.decode, a.view = &decodeCall{a: a}, reconcile.View{Admission: a.adm}
	var first *decodev1.Tokens
	var finished *decodev1.Finished
	err := a.decode.guarded(func() error {
		admitted, err := a.decode.open(ctx)
		if err != nil {
			return err
		}
		a.note(func(c *record.Choice) {
			c.AdmitMS, c.PagesReserved = record.MS(time.Since(a.start)), admitted.Pages
		})
		limit := a.decode.limit(a.r.Times.Verdict, "verdicts and a first token")
		defer limit.Stop()
		p, d, err := a.both(ctx)
		a.note(func(c *record.Choice) { c.Verdicts(p, d) })
		a.view = reconcile.View{Admission: a.adm, Admitted: admitted, Decode: d, Prefill: p}
		if err != nil {
			return err
		}
		fault.At(fault.RouterAnswer)
		err = compare(verdict.Views{Admission: a.adm, Layout: []byte(a.route.Decode.LayoutHash), Admitted: admitted, Decode: d, Prefill: p})
		if err != nil && !fault.Off(fault.Verdict) {
			return err
		}
		a.note(func(c *record.Choice) { c.VerdictsEqual = err == nil })
		if err == nil { // else the guard is switched off, and nothing was proven
			a.r.agreed(a.route)
		}
		a.r.judge(a.job, a.route, p)
		a.admitted, a.p, a.d = admitted, p, d
		first, finished, err = a.decode.next()
		return err
	})
	return first, finished, err
}

// both waits for the two verdicts. When one half fails, the other gets a moment to say why: a loss on one side is
// often the echo of a failed check on the other, which must not be retried.
func (a *attempt) both(ctx context.Context) (*meshv1.PrefillVerdict, *meshv1.DecodeVerdict, error) {
	if a.route.Prefill == nil {
		d, err := a.decode.verdict()
		return nil, d, err
	}
	type half struct {
		v   *meshv1.PrefillVerdict
		err error
	}
	prefill, decoded := make(chan half, 1), make(chan struct{})
	go func() {
		v, err := a.prefill(ctx)
		if err != nil && !a.grace(ctx, decoded) {
			a.cancel(errOver)
		}
		prefill <- half{v, err}
	}()
	d, err := a.decode.verdict()
	close(decoded)
	if err == nil {
		p := <-prefill
		if p.err != nil {
			p.err = worse(a.lastWord(), p.err)
		}
		return p.v, d, p.err
	}
	timer := time.AfterFunc(a.r.Times.Grace, func() { a.cancel(errOver) })
	defer timer.Stop()
	p := <-prefill
	return p.v, nil, worse(err, p.err)
}

// grace waits for a moment and reports whether the other half has spoken.
func (a *attempt) grace(ctx context.Context, other <-chan struct{}) bool {
	t := time.NewTimer(a.r.Times.Grace)
	defer t.Stop()
	select {
	case <-other:
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}

// lastWord is what D failed with after its verdict, if it says so within a moment of P's failure.
func (a *attempt) lastWord() error {
	timer := time.AfterFunc(a.r.Times.Grace, func() { a.cancel(errOver) })
	defer timer.Stop()
	_, _, err := a.decode.next()
	return err
}

// worse is the error that decides: a failed check before a bug, before a refusal, before a loss, before the echo of our
// own cancel. P finds no Pull, or another one, when D or its Pull is gone: that is an echo of D's loss.
func worse(d, p error) error {
	if k := errs.KindOf(p); (k == errs.NotFound || k == errs.Stale) && errs.KindOf(d) == errs.Unavailable && !errors.Is(d, context.Canceled) {
		return d
	}
	if rank(p) > rank(d) {
		return p
	}
	return d
}

func rank(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, context.Canceled):
		return 1
	}
	switch errs.KindOf(err) {
	case errs.Unavailable:
		return 2
	case errs.Exhausted:
		return 3
	case errs.Corrupt:
		return 6
	case errs.Internal:
		return 5
	}
	return 4
}

// close ends both calls; gRPC lets go of a stream whose context ended.
func (a *attempt) close() {
	a.cancel(context.Canceled)
	for _, done := range a.done {
		done()
	}
}

// note changes the choice's record.
func (a *attempt) note(f func(*record.Choice)) {
	if a.job.Entry != nil {
		a.job.Entry.Update(func(*record.Request) { f(a.job.Choice) })
	}
}

func (a *attempt) blank(index uint32, n int) record.Choice {
	c := record.Choice{Index: index, Attempts: n, Route: string(a.route.Why), AdmissionID: hexOf(a.adm.Id),
		Mover: moverName(a.route.Mover), Prefill: a.adm.Prefill, Decode: a.adm.Decode,
		PrefillBroker: a.adm.PrefillBroker, DecodeBroker: a.adm.DecodeBroker}
	return c
}
