package shape

import (
	"bytes"

	openaiv1 "leasehold.dev/protos/gen/leasehold/openai/v1"
)

// topTokens is an object from text to logprob, best first, as Python's dicts come out in order.
type topTokens []*openaiv1.TopLogprob

func (t topTokens) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	seen := map[string]bool{}
	for _, o := range t {
		if seen[o.Token] { // another spelling of the same text, less likely
			continue
		}
		if len(seen) > 0 {
			b.WriteByte(',')
		}
		seen[o.Token] = true
		key, err := encode(o.Token)
		if err != nil {
			return nil, err
		}
		value, err := logprob(o.Logprob).MarshalJSON()
		if err != nil {
			return nil, err
		}
		b.Write(key)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

type textLogprobs struct {
	Tokens   []string    `json:"tokens"`
	Logprobs []logprob   `json:"token_logprobs"`
	Top      []topTokens `json:"top_logprobs"` // null when none were asked for
	Offset   []uint32    `json:"text_offset"`
}

type textChoice struct {
	Text     string        `json:"text"`
	Index    uint32        `json:"index"`
	Logprobs *textLogprobs `json:"logprobs"`
	Finish   *string       `json:"finish_reason"`
	Receipt  string        `json:"leasehold_receipt,omitempty"`
}

// Completion is the body of a unary answer, and the data of one event of a stream. withUsage: usage is there even when
// it is null.
func Completion(c *openaiv1.Completion, withUsage bool) ([]byte, error) {
	choices := []textChoice{}
	for _, o := range c.Choices {
		choices = append(choices, textChoice{o.Text, o.Index, textLogprobsOf(o.Logprobs), o.FinishReason, o.LeaseholdReceipt})
	}
	h := head{c.Id, c.Object, c.Created, c.Model, c.SystemFingerprint}
	if withUsage {
		return encode(struct {
			head
			Choices []textChoice `json:"choices"`
			Usage   *usage       `json:"usage"`
		}{h, choices, usageOf(c.Usage)})
	}
	return encode(struct {
		head
		Choices []textChoice `json:"choices"`
	}{h, choices})
}

func textLogprobsOf(l *openaiv1.TextLogprobs) *textLogprobs {
	if l == nil {
		return nil
	}
	out := &textLogprobs{Tokens: list(l.Tokens), Offset: list(l.TextOffset), Logprobs: []logprob{}}
	for _, v := range l.TokenLogprobs {
		out.Logprobs = append(out.Logprobs, logprob(v))
	}
	for _, t := range l.TopLogprobs {
		out.Top = append(out.Top, t.GetTokens())
	}
	return out
}
