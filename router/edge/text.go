package edge

import (
	"unicode/utf8"

	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	openaiv1 "leasehold.dev/protos/gen/leasehold/openai/v1"
	"leasehold.dev/router/validate"
)

type textHead chatHead

type textSend func(*openaiv1.CompletionsResponse) error

// text writes the answers of /v1/completions, whole or in chunks of the same shape.
type text struct {
	textHead
	v       *validate.Request
	special func(int32) bool
	choices []*openaiv1.TextChoice // collected, unless the answer is streamed
	offset  []uint32               // characters so far
	send    textSend
}

func newText(h textHead, special func(int32) bool, v *validate.Request, send textSend) *text {
	t := &text{textHead: h, v: v, special: special, offset: make([]uint32, v.N), send: send}
	for i := range v.N {
		t.choices = append(t.choices, &openaiv1.TextChoice{Index: i})
	}
	return t
}

func (t *text) completion(u *openaiv1.Usage, choices ...*openaiv1.TextChoice) *openaiv1.Completion {
	return &openaiv1.Completion{Id: "cmpl-" + t.id, Object: "text_completion", Created: t.created, Model: t.model,
		SystemFingerprint: t.fingerprint, Choices: choices, Usage: u}
}

func (t *text) chunk(u *openaiv1.Usage, choices ...*openaiv1.TextChoice) error {
	return t.send(&openaiv1.CompletionsResponse{Kind: &openaiv1.CompletionsResponse_Chunk{Chunk: t.completion(u, choices...)}})
}

func (t *text) tokens(index uint32, m *decodev1.Tokens) error {
	var lp *openaiv1.TextLogprobs
	if t.v.Sampling.Logprobs {
		lp = t.logprobs(index, m)
	}
	if t.v.Stream {
		if m.Text == "" && len(lp.GetTokens()) == 0 {
			return nil
		}
		return t.chunk(nil, &openaiv1.TextChoice{Index: index, Text: m.Text, Logprobs: lp})
	}
	c := t.choices[index]
	c.Text += m.Text
	if lp != nil {
		if c.Logprobs == nil {
			c.Logprobs = &openaiv1.TextLogprobs{}
		}
		c.Logprobs.Tokens = append(c.Logprobs.Tokens, lp.Tokens...)
		c.Logprobs.TokenLogprobs = append(c.Logprobs.TokenLogprobs, lp.TokenLogprobs...)
		c.Logprobs.TopLogprobs = append(c.Logprobs.TopLogprobs, lp.TopLogprobs...)
		c.Logprobs.TextOffset = append(c.Logprobs.TextOffset, lp.TextOffset...)
	}
	return nil
}

func (t *text) logprobs(index uint32, m *decodev1.Tokens) *openaiv1.TextLogprobs {
	out := &openaiv1.TextLogprobs{}
	for _, one := range m.Tokens {
		if t.special(one.Id) {
			continue
		}
		word := spell(one.TokenBytes)
		out.Tokens = append(out.Tokens, word)
		out.TokenLogprobs = append(out.TokenLogprobs, float64(one.Logprob))
		out.TextOffset = append(out.TextOffset, t.offset[index])
		t.offset[index] += uint32(utf8.RuneCountInString(word))
		if t.v.Sampling.TopLogprobs > 0 {
			top := &openaiv1.TopTokens{}
			for _, o := range one.Top {
				top.Tokens = append(top.Tokens, topLogprob(o))
			}
			out.TopLogprobs = append(out.TopLogprobs, top)
		}
	}
	return out
}

func (t *text) finish(index uint32, reason, receipt string) error {
	if t.v.Stream {
		return t.chunk(nil, &openaiv1.TextChoice{Index: index, FinishReason: &reason, LeaseholdReceipt: receipt})
	}
	t.choices[index].FinishReason, t.choices[index].LeaseholdReceipt = &reason, receipt
	return nil
}

func (t *text) end(u *openaiv1.Usage) error {
	if !t.v.Stream {
		return t.send(&openaiv1.CompletionsResponse{Kind: &openaiv1.CompletionsResponse_Full{Full: t.completion(u, t.choices...)}})
	}
	if t.v.IncludeUsage {
		if err := t.chunk(u); err != nil {
			return err
		}
	}
	return t.send(&openaiv1.CompletionsResponse{Kind: &openaiv1.CompletionsResponse_Done{Done: &openaiv1.Done{}}})
}
