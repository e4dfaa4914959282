package choose

import (
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/router/toofast"
)

// Worker is the newest status of one worker. Hashes are raw bytes in a string, so that workers compare with ==.
type Worker struct {
	ID, Broker        string
	Instance          string // of its broker
	ModelRevision     string
	TokenizerRevision string
	LayoutHash        string
	Numerics          string
	Limit             uint32 // most tokens of one request, derived
	Promised          uint32 // told; 0: nothing
	Pages, Free       uint32
	Queued            uint32 // prompt tokens waiting or running
	Sequences         uint32
	Local, SHM        bool // movers
	UCX, GRPC         bool
	Fabric            string // of its broker: mover processes of an equal one reach each other; empty: none
	Host              string // of its broker: brokers with an equal one can share memory; empty: with none
	SelfPrefill       bool
	GuardsOn          bool
	Up                bool   // says it is ready, was heard of lately, and its breaker is closed
	Reason            string // why not
	Open              uint32 // calls that this router has running there
	Warm              toofast.Fit
}

// FromStatus takes over what a worker says. Up is only what the worker says of itself.
func FromStatus(s *meshv1.WorkerStatus) Worker {
	w := Worker{
		ID: s.GetId(), Broker: s.GetBroker(), Instance: string(s.GetBrokerInstance()),
		ModelRevision: string(s.GetModelRevision()), TokenizerRevision: string(s.GetTokenizerRevision()),
		LayoutHash: string(s.GetLayoutHash()), Numerics: s.GetNumericsClass(),
		Limit: s.GetLimitTokens(), Promised: s.GetPromisedTokens(),
		Pages: s.GetPoolPages(), Free: s.GetFreePages(), Queued: s.GetQueuedTokens(), Sequences: s.GetSequences(),
		SelfPrefill: s.GetSelfPrefill(), GuardsOn: s.GetGuardsOn(), Host: s.GetHost(), Fabric: s.GetFabric(), Up: s.GetReady(), Reason: s.GetReason(),
	}
	if f := s.GetWarmUp(); f != nil {
		w.Warm = toofast.Fit{A: f.GetAUs(), B: f.GetBUs(), Measured: f.GetMeasuredTokens()}
	}
	for _, m := range s.GetMovers() {
		w.Local = w.Local || m == meshv1.Mover_MOVER_LOCAL
		w.SHM = w.SHM || m == meshv1.Mover_MOVER_SHM
		w.UCX = w.UCX || m == meshv1.Mover_MOVER_UCX
		w.GRPC = w.GRPC || m == meshv1.Mover_MOVER_GRPC
	}
	if w.Up && (w.ID == "" || w.Broker == "" || w.Instance == "" || w.LayoutHash == "" || w.Numerics == "") {
		w.Up, w.Reason = false, "its status lacks id, broker, layout or numerics class"
	}
	return w
}

// Model is what the router serves.
type Model struct {
	Revision, Tokenizer string // raw SHA-256
	Promise             uint32 // most tokens of a request that tenants are promised
}

// Fleet is all workers, up or not.
type Fleet struct {
	Prefill, Decode []Worker
}

// usable workers hold the model that the router tokenises for.
func usable(ws []Worker, m Model) []Worker {
	var out []Worker
	for _, w := range ws {
		if w.Up && w.ModelRevision == m.Revision && w.TokenizerRevision == m.Tokenizer {
			out = append(out, w)
		}
	}
	return out
}

// Mover is how pages get from p to d, the fastest that both have, or MOVER_UNSPECIFIED when the two do not fit together: other weights, another
// tokenizer, layout or numerics class, or no mover that both have.
func Mover(p, d Worker) meshv1.Mover {
	switch {
	case p.ModelRevision != d.ModelRevision || p.TokenizerRevision != d.TokenizerRevision:
	case p.LayoutHash != d.LayoutHash || p.Numerics != d.Numerics:
	case p.Instance == d.Instance && p.Local && d.Local:
		return meshv1.Mover_MOVER_LOCAL
	case p.Instance == d.Instance:
	case p.SHM && d.SHM && p.Host == d.Host && p.Host != "":
		return meshv1.Mover_MOVER_SHM
	case p.UCX && d.UCX && p.Fabric == d.Fabric && p.Fabric != "":
		return meshv1.Mover_MOVER_UCX
	case p.GRPC && d.GRPC:
		return meshv1.Mover_MOVER_GRPC
	}
	return meshv1.Mover_MOVER_UNSPECIFIED
}

// Ready reports whether any pair of workers could serve the model, and if not, why.
func Ready(f Fleet, m Model) (bool, string) {
	ps, ds := usable(f.Prefill, m), usable(f.Decode, m)
	switch {
	case len(ds) == 0:
		return false, "no decode worker is ready for this model"
	case len(ps) == 0:
		return false, "no prefill worker is ready for this model"
	}
	for _, d := range ds {
		if len(partners(d, ps, nil)) > 0 {
			return true, ""
		}
	}
	return false, "no ready prefill worker agrees with a decode worker on layout, numerics class and mover"
}

// Pair names two workers; Prefill is empty when decode computes the prompt itself.
type Pair struct{ Prefill, Decode string }

func partners(d Worker, ps []Worker, without map[Pair]bool) []Worker {
	var out []Worker
	for _, p := range ps {
		if Mover(p, d) != meshv1.Mover_MOVER_UNSPECIFIED && !without[Pair{p.ID, d.ID}] {
			out = append(out, p)
		}
	}
	return out
}
