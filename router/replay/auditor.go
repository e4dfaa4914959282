package replay

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"leasehold.dev/mesh/boundary"
	"leasehold.dev/protos/errs"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	"leasehold.dev/router/choose"
	"leasehold.dev/router/flow"
)

// Incident is a replay that did not give what the tenant got. No text is in it.
type Incident struct {
	Receipt, Tenant, Pair, Elsewhere string
	Result                           Result
	Error                            string // of a check that failed
}

// Config is what an Auditor is made of.
type Config struct {
	Policy   Policy
	Runner   *flow.Runner // runs the replays; its meter is not the tenants'
	Metrics  *Metrics
	Boundary *boundary.Recorder
	Log      *slog.Logger
	Incident func(Incident) // for the audit log; nil: there is none
}

// Auditor runs replays, one at a time. It is safe for concurrent use.
type Auditor struct {
	Config

	mu   sync.Mutex
	core *Core
	kick chan struct{}
	ring ring
}

// New makes an auditor that does nothing until Run.
func New(c Config) *Auditor {
	return &Auditor{Config: c, core: NewCore(c.Policy), kick: make(chan struct{}, 1)}
}

// Of makes a job of a finished choice.
func Of(receipt string, ids []int32, a *flow.Account) *Job {
	return &Job{Receipt: receipt, Tenant: a.Admission.GetTenant(), IDs: ids, Sampling: a.Sampling, MaxNew: a.Admission.GetMaxNewTokens(),
		New: a.Finished.GetCompletionTokens(), Numerics: a.Finished.GetNumericsClass(), Output: a.Finished.GetOutputDigest(), Logits: a.Finished.GetLogitDigest(),
		Pair: Pair{Prefill: a.Admission.GetPrefill(), Decode: a.Admission.GetDecode(), PrefillInstance: string(a.Prefill.GetInstance()), DecodeInstance: string(a.Decode.GetInstance())}}
}

// Finished is told of every answer; it returns at once.
func (a *Auditor) Finished(j *Job) {
	if a.Policy.Budget <= 0 {
		return
	}
	a.Boundary.Expect(boundary.P1, boundary.Replay, name(j.Pair))
	a.mu.Lock()
	taken, dropped := a.core.Finished(j, rand.Float64())
	a.mu.Unlock()
	if taken != "" {
		a.Metrics.taken(taken)
	}
	a.dropped(dropped)
	select {
	case a.kick <- struct{}{}:
	default:
	}
}

// Run runs replays until ctx ends. It is called once.
func (a *Auditor) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.kick:
		case <-timer.C:
		}
		for ctx.Err() == nil {
			a.mu.Lock()
			job, again := a.core.Next(time.Now())
			a.mu.Unlock()
			if job == nil {
				if !again.IsZero() {
					timer.Reset(time.Until(again))
				}
				break
			}
			r := a.run(ctx, job, true)
			a.mu.Lock()
			dropped := a.core.Ended(time.Now(), r)
			a.mu.Unlock()
			a.dropped(dropped)
		}
	}
}

// Now runs j at once, whatever the load and the budget: somebody asked for it.
func (a *Auditor) Now(ctx context.Context, j *Job) Result { return a.run(ctx, j, false) }

// run is one replay, with all that is said of it.
func (a *Auditor) run(ctx context.Context, j *Job, waits bool) Result {
	route, err := choose.Again(a.Runner.Fleet.Snapshot(), a.Runner.Model, choose.Replay{Tokens: uint32(len(j.IDs)), MaxNew: j.MaxNew,
		Numerics: j.Numerics, Decode: j.Pair.Decode, Waits: waits})
	seen := Seen{Receipt: j.Receipt, Pair: name(j.Pair), At: time.Now().UTC(), Prompt: len(j.IDs), FirstOutput: hex.EncodeToString(j.Output), FirstLogits: hex.EncodeToString(j.Logits)}
	var account *flow.Account
	if err == nil {
		seen.Elsewhere = route.Decode.ID
		account, err = a.again(ctx, j, route)
	}
	seen.Result = judge(j, account, err)
	if account != nil {
		seen.Output, seen.Logits = hex.EncodeToString(account.Finished.GetOutputDigest()), hex.EncodeToString(account.Finished.GetLogitDigest())
		seen.New, seen.Rows = account.Finished.GetCompletionTokens(), account.Decode.GetRows()
	}
	if ctx.Err() == nil {
		a.say(j, seen, err)
	}
	return seen.Result
}

// again runs j on route to its end.
func (a *Auditor) again(ctx context.Context, j *Job, route choose.Route) (*flow.Account, error) {
	s, err := a.Runner.On(ctx, flow.Job{Request: "replay of " + j.Receipt, Tenant: j.Tenant, IDs: j.IDs, MaxNew: j.MaxNew, Sampling: j.Sampling}, route)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	for {
		var f *decodev1.Finished
		if _, f, err = s.Next(); err != nil {
			return nil, err
		}
		if f != nil {
			return s.Account(), nil
		}
	}
}

// judge compares what came with what the tenant got. A failure of a check is as bad as a difference.
func judge(j *Job, a *flow.Account, err error) Result {
	switch {
	case err == nil && a != nil && len(j.Output) > 0 && len(j.Logits) > 0 && bytes.Equal(a.Finished.GetOutputDigest(), j.Output) &&
		bytes.Equal(a.Finished.GetLogitDigest(), j.Logits) && a.Finished.GetCompletionTokens() == j.New:
		return Equal
	case err == nil:
		return Different
	case errors.Is(err, context.Canceled):
		return Away
	}
	switch errs.KindOf(err) {
	case errs.NotFound:
		return Nobody
	case errs.Exhausted:
		return Busy
	case errs.Unavailable, errs.Stale:
		return Away
	}
	return Broken
}

func (a *Auditor) say(j *Job, s Seen, err error) {
	a.Metrics.ended(s)
	switch s.Result {
	case Equal:
		a.Boundary.Observed(boundary.P1, boundary.Replay, s.Pair)
	case Different, Broken:
		a.Boundary.Observed(boundary.P1, boundary.Replay, s.Pair)
		a.Boundary.Incident(boundary.P1, boundary.Replay, "receipt "+j.Receipt)
		text := ""
		if err != nil {
			text = err.Error()
		}
		a.Log.Error("P1: a request that was run again is not the same", "receipt", j.Receipt, "tenant", j.Tenant, "pair", s.Pair, "elsewhere", s.Elsewhere,
			"result", string(s.Result), "output", s.Output, "first_output", s.FirstOutput, "logits", s.Logits, "first_logits", s.FirstLogits, "err", text)
		if a.Incident != nil {
			a.Incident(Incident{Receipt: j.Receipt, Tenant: j.Tenant, Pair: s.Pair, Elsewhere: s.Elsewhere, Result: s.Result, Error: text})
		}
	case Busy:
		return // it is seen when it ends
	}
	a.ring.add(s)
}

func (a *Auditor) dropped(all []Drop) {
	for _, d := range all {
		a.Metrics.dropped(d.Why)
		a.Log.Warn("a replay is given up", "receipt", d.Job.Receipt, "pair", name(d.Job.Pair), "why", string(d.Why), "prompt_tokens", len(d.Job.IDs))
	}
}

// Waiting is what is queued.
func (a *Auditor) Waiting() (jobs int, bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.core.Waiting()
}

func name(p Pair) string { return boundary.Pair(p.Prefill, p.Decode) }
