package validate

import (
	"strconv"

	"google.golang.org/protobuf/types/known/structpb"

	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	openaiv1 "leasehold.dev/protos/gen/leasehold/openai/v1"
	"leasehold.dev/protos/receipt"
	"leasehold.dev/router/apierr"
)

// fields are what both requests have in common.
type fields interface {
	GetModel() string
	GetStream() bool
	GetStreamOptions() *openaiv1.StreamOptions
	GetStop() *structpb.Value
	GetLogitBias() map[string]float64
}

func common(r fields, vocab uint32) (*Request, error) {
	out := &Request{Model: r.GetModel(), Stream: r.GetStream(), N: 1}
	if out.Model == "" {
		return nil, apierr.Missing("model")
	}
	if o := r.GetStreamOptions(); o != nil {
		if !out.Stream {
			return nil, apierr.Invalid("stream_options", "'stream_options' is only allowed when 'stream' is true.")
		}
		out.IncludeUsage = o.GetIncludeUsage()
	}
	var err error
	if out.Sampling, err = sampling(r); err != nil {
		return nil, err
	}
	if out.Sampling.Stop, err = stop(r.GetStop()); err != nil {
		return nil, err
	}
	if out.Sampling.LogitBias, err = bias(r.GetLogitBias(), vocab); err != nil {
		return nil, err
	}
	n, seed, k := integers(r)
	if n != nil {
		if *n < 1 || *n > MaxChoices {
			return nil, apierr.Invalid("n", "Invalid value for 'n': expected 1 to %d, got %d.", MaxChoices, *n)
		}
		out.N = *n
	}
	if seed != nil {
		s := uint64(*seed)
		out.Seed = &s
	}
	if k != nil {
		if *k > vocab {
			return nil, apierr.Invalid("top_k", "Invalid value for 'top_k': expected 0 (off) to %d, got %d.", vocab, *k)
		}
		out.Sampling.TopK = *k
	}
	return out, nil
}

func integers(r fields) (n *uint32, seed *int64, topK *uint32) {
	switch r := r.(type) {
	case *openaiv1.ChatCompletionsRequest:
		return r.N, r.Seed, r.TopK
	case *openaiv1.CompletionsRequest:
		return r.N, r.Seed, r.TopK
	}
	return nil, nil, nil
}

// minRepetition is the least that decode's samplers divide and multiply by: decode/sample.Params.Check. A range here must
// lie inside of decode's, or a tenant's mistake becomes a refusal inside of the mesh.
const minRepetition = 0.01

// span is a field with its range; open leaves lo itself out.
type span struct {
	name   string
	v      *float64
	lo, hi float64
	open   bool
	to     *float32
}

func sampling(r fields) (*decodev1.Sampling, error) {
	s := &decodev1.Sampling{Temperature: 1, TopP: 1}
	at := func(temperature, topP, minP, frequency, presence, repetition *float64) []span {
		return []span{
			{"temperature", temperature, 0, 2, false, &s.Temperature},
			{"top_p", topP, 0, 1, true, &s.TopP},
			{"min_p", minP, 0, 1, false, &s.MinP},
			{"frequency_penalty", frequency, -2, 2, false, &s.FrequencyPenalty},
			{"presence_penalty", presence, -2, 2, false, &s.PresencePenalty},
			{"repetition_penalty", repetition, minRepetition, 2, false, &s.RepetitionPenalty},
		}
	}
	var spans []span
	switch r := r.(type) {
	case *openaiv1.ChatCompletionsRequest:
		spans = at(r.Temperature, r.TopP, r.MinP, r.FrequencyPenalty, r.PresencePenalty, r.RepetitionPenalty)
	case *openaiv1.CompletionsRequest:
		spans = at(r.Temperature, r.TopP, r.MinP, r.FrequencyPenalty, r.PresencePenalty, r.RepetitionPenalty)
	}
	for _, f := range spans {
		if f.v == nil {
			continue
		}
		v := *f.v
		if !(v >= f.lo && v <= f.hi) || f.open && v == f.lo { // NaN fails the first
			above := ""
			if f.open {
				above = "above "
			}
			return nil, apierr.Invalid(f.name, "Invalid value for '%s': expected %s%v to %v, got %v.", f.name, above, f.lo, f.hi, v)
		}
		*f.to = float32(v)
		if f.open && *f.to == 0 { // too small for float32, where 0 would mean off
			return nil, apierr.Invalid(f.name, "Invalid value for '%s': %v is too small.", f.name, v)
		}
	}
	return s, nil
}

// MaxBias bounds the values of logit_bias.
const MaxBias = 100

func bias(in map[string]float64, vocab uint32) (map[int32]float32, error) {
	if len(in) == 0 {
		return nil, nil
	}
	if len(in) > receipt.MaxBias {
		return nil, apierr.Invalid("logit_bias", "Invalid 'logit_bias': expected at most %d tokens, got %d.", receipt.MaxBias, len(in))
	}
	out := make(map[int32]float32, len(in))
	for k, v := range in {
		id, err := strconv.ParseUint(k, 10, 31)
		if err != nil || id >= uint64(vocab) {
			return nil, apierr.Invalid("logit_bias", "Invalid key in 'logit_bias': expected token ids from 0 to %d.", vocab-1)
		}
		if !(v >= -MaxBias && v <= MaxBias) {
			return nil, apierr.Invalid("logit_bias", "Invalid value in 'logit_bias' for token %d: expected %d to %d, got %v.", id, -MaxBias, MaxBias, v)
		}
		if _, twice := out[int32(id)]; twice {
			return nil, apierr.Invalid("logit_bias", "Token %d is in 'logit_bias' twice.", id)
		}
		out[int32(id)] = float32(v)
	}
	return out, nil
}
