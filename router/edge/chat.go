package edge

import (
	"strings"

	"google.golang.org/protobuf/proto"

	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	openaiv1 "leasehold.dev/protos/gen/leasehold/openai/v1"
	"leasehold.dev/router/validate"
)

type chatSend func(*openaiv1.ChatCompletionsResponse) error

type chatHead struct {
	id          string
	created     uint32
	model       string
	fingerprint string
}

// chatStream writes chunks: for each choice its role, its content, and one finish_reason.
type chatStream struct {
	chatHead
	special  func(int32) bool
	logprobs bool
	usage    bool
	begun    [validate.MaxChoices]bool
	send     chatSend
}

func (s *chatStream) chunk(u *openaiv1.Usage, choices ...*openaiv1.ChunkChoice) error {
	return s.send(&openaiv1.ChatCompletionsResponse{Kind: &openaiv1.ChatCompletionsResponse_Chunk{Chunk: &openaiv1.ChatCompletionChunk{
		Id: "chatcmpl-" + s.id, Object: "chat.completion.chunk", Created: s.created, Model: s.model,
		SystemFingerprint: s.fingerprint, Choices: choices, Usage: u}}})
}

func (s *chatStream) begin(index uint32) error {
	if s.begun[index] {
		return nil
	}
	s.begun[index] = true
	return s.chunk(nil, &openaiv1.ChunkChoice{Index: index, Delta: &openaiv1.Delta{Role: proto.String("assistant"), Content: proto.String("")}})
}

func (s *chatStream) tokens(index uint32, t *decodev1.Tokens) error {
	if err := s.begin(index); err != nil {
		return err
	}
	var lp *openaiv1.ChoiceLogprobs
	if s.logprobs {
		lp = &openaiv1.ChoiceLogprobs{Content: tokenLogprobs(t, s.special)}
	}
	if t.Text == "" && len(lp.GetContent()) == 0 {
		return nil
	}
	return s.chunk(nil, &openaiv1.ChunkChoice{Index: index, Delta: &openaiv1.Delta{Content: proto.String(t.Text)}, Logprobs: lp})
}

func (s *chatStream) finish(index uint32, reason, receipt string) error {
	if err := s.begin(index); err != nil {
		return err
	}
	return s.chunk(nil, &openaiv1.ChunkChoice{Index: index, Delta: &openaiv1.Delta{}, FinishReason: &reason, LeaseholdReceipt: receipt})
}

func (s *chatStream) end(u *openaiv1.Usage) error {
	if s.usage {
		if err := s.chunk(u); err != nil {
			return err
		}
	}
	return s.send(&openaiv1.ChatCompletionsResponse{Kind: &openaiv1.ChatCompletionsResponse_Done{Done: &openaiv1.Done{}}})
}

// chatUnary collects an answer.
type chatUnary struct {
	special func(int32) bool
	full    *openaiv1.ChatCompletion
	text    []strings.Builder
	send    chatSend
}

func newChatUnary(h chatHead, special func(int32) bool, v *validate.Request, send chatSend) *chatUnary {
	u := &chatUnary{special: special, send: send, text: make([]strings.Builder, v.N), full: &openaiv1.ChatCompletion{
		Id: "chatcmpl-" + h.id, Object: "chat.completion", Created: h.created, Model: h.model, SystemFingerprint: h.fingerprint}}
	for i := range v.N {
		c := &openaiv1.Choice{Index: i, Message: &openaiv1.AssistantMessage{Role: "assistant"}}
		if v.Sampling.Logprobs {
			c.Logprobs = &openaiv1.ChoiceLogprobs{}
		}
		u.full.Choices = append(u.full.Choices, c)
	}
	return u
}

func (u *chatUnary) tokens(index uint32, t *decodev1.Tokens) error {
	u.text[index].WriteString(t.Text)
	if lp := u.full.Choices[index].Logprobs; lp != nil {
		lp.Content = append(lp.Content, tokenLogprobs(t, u.special)...)
	}
	return nil
}

func (u *chatUnary) finish(index uint32, reason, receipt string) error {
	u.full.Choices[index].FinishReason, u.full.Choices[index].LeaseholdReceipt = &reason, receipt
	u.full.Choices[index].Message.Content = u.text[index].String()
	return nil
}

func (u *chatUnary) end(usage *openaiv1.Usage) error {
	u.full.Usage = usage
	return u.send(&openaiv1.ChatCompletionsResponse{Kind: &openaiv1.ChatCompletionsResponse_Full{Full: u.full}})
}

// tokenLogprobs leaves out the tokens that are no text, such as the end of the turn.
func tokenLogprobs(t *decodev1.Tokens, special func(int32) bool) []*openaiv1.TokenLogprob {
	var out []*openaiv1.TokenLogprob
	for _, one := range t.Tokens {
		if special(one.Id) {
			continue
		}
		l := &openaiv1.TokenLogprob{Token: spell(one.TokenBytes), Logprob: float64(one.Logprob), Bytes: numbers(one.TokenBytes)}
		for _, o := range one.Top {
			l.TopLogprobs = append(l.TopLogprobs, topLogprob(o))
		}
		out = append(out, l)
	}
	return out
}

func topLogprob(o *decodev1.TopLogprob) *openaiv1.TopLogprob {
	return &openaiv1.TopLogprob{Token: spell(o.TokenBytes), Logprob: float64(o.Logprob), Bytes: numbers(o.TokenBytes)}
}

// spell is a token as text: a part of a character becomes U+FFFD.
func spell(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

func numbers(b []byte) []uint32 {
	out := make([]uint32, len(b))
	for i, c := range b {
		out[i] = uint32(c)
	}
	return out
}
