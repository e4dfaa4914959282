package flow

import (
	"context"
	"crypto/ed25519"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"leasehold.dev/mesh/audit"
	"leasehold.dev/mesh/audit/event"
	"leasehold.dev/mesh/boundary"
	"leasehold.dev/protos/errs"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	"leasehold.dev/router/apierr"
	"leasehold.dev/router/choose"
	"leasehold.dev/router/fleet"
	"leasehold.dev/router/meter"
	"leasehold.dev/router/record"
	"leasehold.dev/router/retry"
	"leasehold.dev/router/verdict"
	"leasehold.dev/router/witness"
)

// Times bound what a worker may take. A worker that is over them counts as lost.
type Times struct {
	Admit   time.Duration // until Admitted
	Verdict time.Duration // from Admitted until both verdicts and the first token
	Token   time.Duration // between two messages later
	Request time.Duration // all of it; the admission's deadline
	Grace   time.Duration // what the other half gets to say why, once one has failed
}

// DefaultTimes suit a CPU.
var DefaultTimes = Times{Admit: 10 * time.Second, Verdict: 5 * time.Minute, Token: time.Minute, Request: 15 * time.Minute, Grace: 250 * time.Millisecond}

// Config is what a Runner is made of.
type Config struct {
	Fleet        *fleet.Fleet
	Key          ed25519.PrivateKey
	Model        choose.Model
	ModelName    string
	Default      uint32 // max_tokens when absent
	UnsplitBelow uint32
	Times        Times
	Budget       *retry.Budget
	Meter        *meter.Meter
	Boundary     *boundary.Recorder
	Witness      *witness.Witness
	Audit        *audit.Log // nil: none
	Log          *slog.Logger
}

// Runner is safe for concurrent use.
type Runner struct{ Config }

// Job is one choice. It is not changed.
type Job struct {
	Request  string // id, for logs
	Tenant   string
	IDs      []int32
	MaxNew   uint32 // 0: absent
	Param    string // the field that MaxNew came from
	Sampling *decodev1.Sampling
	Only     *choose.Pair   // nil: the router picks
	Entry    *record.Entry  // nil: no request of a tenant
	Choice   *record.Choice // of Entry's request; changed under its lock only
}

// Check refuses what no ready pair can hold, and says what would be picked now. Nothing is reserved.
func (r *Runner) Check(job Job) (choose.Route, error) { return r.plan(job, nil) }

func (r *Runner) plan(job Job, without map[choose.Pair]bool) (choose.Route, error) {
	route, err := choose.Plan(r.Fleet.Snapshot(), r.Model, choose.Request{
		Tokens: uint32(len(job.IDs)), MaxNew: job.MaxNew, Default: r.Default, UnsplitBelow: r.UnsplitBelow, Without: without, Only: job.Only,
	}, rand.IntN)
	if err != nil && errs.KindOf(err) == errs.Limit {
		param := job.Param
		if param == "" {
			param = "messages"
		}
		return route, apierr.ContextLength(param, "This model's maximum context length is exceeded: %v.", err)
	}
	return route, err
}

// Start returns when the choice's first token may go out. It tries a second pair when the first was lost.
func (r *Runner) Start(ctx context.Context, job Job) (*Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Times.Request)
	r.Budget.Request()
	without := map[choose.Pair]bool{}
	var last error
	var lost string // admission of the attempt that last is of
	for n := 1; ; n++ {
		route, err := r.plan(job, without)
		if err != nil {
			if last != nil { // the first failure says more than "no other pair"
				r.retried("no_pair", job, lost, last)
				err = last
			}
			cancel()
			return nil, err
		}
		if n > 1 {
			if !r.Budget.Take() {
				r.retried("no_budget", job, lost, last)
				cancel()
				return nil, last
			}
			r.retried("taken", job, lost, last)
		}
		s, admission, err := r.attempt(ctx, job, route, n)
		if err == nil {
			s.end = cancel
			return s, nil
		}
		if job.Entry != nil {
			job.Entry.Update(func(*record.Request) { job.Choice.Error = errs.KindOf(err).String() + ": " + err.Error() })
		}
		r.disagreement(job, admission, route, err)
		if n == retry.Attempts || ctx.Err() != nil || !retry.Lost(err) {
			cancel()
			return nil, err
		}
		r.Log.Warn("attempt lost before the first token", "request", job.Request, "route", string(route.Why),
			"prefill", route.Pair().Prefill, "decode", route.Decode.ID, "err", err)
		without[route.Pair()] = true
		last, lost = err, admission
	}
}

// On is Start on one route, without a second attempt: it is for who has chosen the route.
func (r *Runner) On(ctx context.Context, job Job, route choose.Route) (*Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Times.Request)
	s, admission, err := r.attempt(ctx, job, route, 1)
	if err != nil {
		cancel()
		r.disagreement(job, admission, route, err)
		return nil, err
	}
	s.end = cancel
	return s, nil
}

// retried counts and records what became of a lost attempt.
func (r *Runner) retried(result string, job Job, lost string, why error) {
	r.Meter.Retry(result)
	r.Audit.Append(event.Retry{Request: job.Request, Admission: lost, Result: result, Reason: event.Reason(why)})
}

// disagreement counts, says and records differences of views: also a worker that refuses what was admitted. A loss is none.
func (r *Runner) disagreement(job Job, admission string, route choose.Route, err error) {
	field := ""
	d := (*verdict.Disagreement)(nil)
	switch kind := errs.KindOf(err); {
	case errors.As(err, &d):
		field = d.Field
		r.Boundary.Incident(boundary.P4, boundary.Verdict, "request "+job.Request)
	case kind == errs.Limit:
		field = "worker_limit"
		r.Boundary.Incident(boundary.P5, boundary.Refusal, "request "+job.Request)
	case kind == errs.Corrupt:
		field = "worker_check"
		r.Boundary.Incident(boundary.P4, boundary.Refusal, "request "+job.Request)
	case kind == errs.Invalid || kind == errs.Denied:
		field = "worker_refusal"
		r.Boundary.Incident(boundary.P4, boundary.Refusal, "request "+job.Request)
	default:
		return
	}
	r.Meter.Disagreement(field)
	r.Audit.Append(event.Disagreement{Request: job.Request, Admission: admission, Field: field, Error: errs.KindOf(err).String(), Reason: event.Reason(err)})
	r.Log.Error("incident: two views of one request differ", "request", job.Request, "field", field, "route", string(route.Why),
		"prefill", route.Pair().Prefill, "decode", route.Decode.ID, "prompt_tokens", len(job.IDs), "max_new", route.MaxNew, "err", err)
}
