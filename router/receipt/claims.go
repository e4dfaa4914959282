package receipt

import (
	"slices"
	"strings"
	"time"

	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	"leasehold.dev/protos/receipt"
	"leasehold.dev/router/flow"
)

// Head is the newest signed head of the audit log, or nil while there is none.
type Head func() *receipt.Head

// Claims is what a finished choice was. received and finished are the router's times of the request and of the choice.
// It invents nothing: what a worker did not say stays empty, and then the receipt cannot be signed.
func Claims(id ID, request []byte, choice uint32, a *flow.Account, received, finished time.Time) *receipt.Claims {
	adm, d, p, f := a.Admission, a.Decode, a.Prefill, a.Finished
	c := &receipt.Claims{
		Version: receipt.Version, ID: id[:], Request: request, Choice: choice, Tenant: adm.GetTenant(), Nonce: adm.GetNonce(),
		PromptDigest: d.GetPromptDigest(), OutputDigest: f.GetOutputDigest(), LogitDigest: f.GetLogitDigest(),
		Model: adm.GetModel(), ModelRevision: d.GetModelRevision(), Sampling: sampling(a.Sampling, adm.GetMaxNewTokens()), Numerics: f.GetNumericsClass(),
		Workers:   receipt.Halves[string]{Prefill: adm.GetPrefill(), Decode: adm.GetDecode()},
		Leases:    receipt.Halves[receipt.Hex]{Prefill: p.GetLeaseHash(), Decode: d.GetLeaseHash()},
		Instances: receipt.Halves[receipt.Hex]{Prefill: p.GetInstance(), Decode: d.GetInstance()},
		Epochs:    receipt.Halves[uint64]{Prefill: p.GetEpoch(), Decode: d.GetEpoch()},
		Tokens:    receipt.Tokens{Prompt: f.GetPromptTokens(), Completion: f.GetCompletionTokens(), From: d.GetFromToken(), Rows: d.GetRows()},
		Pages:     receipt.Pages{Reserved: a.Admitted.GetPages(), Expected: d.GetExpectedPages(), Moved: d.GetPages()},
		Root:      d.GetRoot(), GuardsOn: f.GetGuardsOn(), Verdict: receipt.Equal, Finish: flow.Reason(f), Route: string(a.Route.Why),
		Mover: strings.ToLower(strings.TrimPrefix(d.GetMover().String(), "MOVER_")),
		Times: receipt.Times{Received: received.UnixMilli(), FirstToken: a.FirstToken.UnixMilli(), Finished: finished.UnixMilli()},
	}
	return c
}

func sampling(s *decodev1.Sampling, maxNew uint32) receipt.Sampling {
	out := receipt.Sampling{Temperature: s.GetTemperature(), TopP: s.GetTopP(), TopK: s.GetTopK(), MinP: s.GetMinP(),
		FrequencyPenalty: s.GetFrequencyPenalty(), PresencePenalty: s.GetPresencePenalty(), RepetitionPenalty: s.GetRepetitionPenalty(),
		LogitBias: []receipt.Bias{}, Seed: s.GetSeed(), StopDigest: receipt.StopDigest(s.GetStop()), IgnoreEOS: s.GetIgnoreEos(), MaxNew: maxNew}
	for token, bias := range s.GetLogitBias() {
		out.LogitBias = append(out.LogitBias, receipt.Bias{Token: token, Bias: bias})
	}
	slices.SortFunc(out.LogitBias, func(a, b receipt.Bias) int { return int(a.Token) - int(b.Token) })
	return out
}

// Sampling is what a worker is told to run c's request again; stop are the strings that c has the digest of.
func Sampling(c *receipt.Claims, stop []string) *decodev1.Sampling {
	s := c.Sampling
	out := &decodev1.Sampling{Temperature: s.Temperature, TopP: s.TopP, TopK: s.TopK, MinP: s.MinP, FrequencyPenalty: s.FrequencyPenalty,
		PresencePenalty: s.PresencePenalty, RepetitionPenalty: s.RepetitionPenalty, Seed: s.Seed, Stop: stop, IgnoreEos: s.IgnoreEOS}
	for _, b := range s.LogitBias {
		if out.LogitBias == nil {
			out.LogitBias = map[int32]float32{}
		}
		out.LogitBias[b.Token] = b.Bias
	}
	return out
}
