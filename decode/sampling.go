package decode

import (
	"leasehold.dev/decode/sample"
	"leasehold.dev/protos/errs"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
)

// params reads what was asked for. Its numbers are checked by package sample; no Sampling at all is greedy.
func params(s *decodev1.Sampling) (sample.Params, error) {
	if s.GetTopLogprobs() > sample.MaxTop {
		return sample.Params{}, errs.New(errs.Invalid, "top_logprobs is %d, want 0 to %d", s.GetTopLogprobs(), sample.MaxTop)
	}
	if err := checkStops(s.GetStop()); err != nil {
		return sample.Params{}, err
	}
	return sample.Params{
		Temperature: s.GetTemperature(), TopP: s.GetTopP(), TopK: s.GetTopK(), MinP: s.GetMinP(),
		Frequency: s.GetFrequencyPenalty(), Presence: s.GetPresencePenalty(), Repetition: s.GetRepetitionPenalty(),
		Bias: s.GetLogitBias(), Seed: s.GetSeed(), Logprobs: s.GetLogprobs(), Top: int(s.GetTopLogprobs()),
	}, nil
}
