package shape

import openaiv1 "leasehold.dev/protos/gen/leasehold/openai/v1"

type head struct {
	ID          string `json:"id"`
	Object      string `json:"object"`
	Created     uint32 `json:"created"`
	Model       string `json:"model"`
	Fingerprint string `json:"system_fingerprint"`
}

type topLogprob struct {
	Token   string   `json:"token"`
	Logprob logprob  `json:"logprob"`
	Bytes   []uint32 `json:"bytes"`
}

type tokenLogprob struct {
	topLogprob
	Top []topLogprob `json:"top_logprobs"`
}

type logprobs struct {
	Content []tokenLogprob `json:"content"`
	Refusal *string        `json:"refusal"`
}

func logprobsOf(l *openaiv1.ChoiceLogprobs) *logprobs {
	if l == nil {
		return nil
	}
	out := &logprobs{Content: []tokenLogprob{}}
	for _, t := range l.Content {
		one := tokenLogprob{topLogprob{t.Token, logprob(t.Logprob), list(t.Bytes)}, []topLogprob{}}
		for _, o := range t.TopLogprobs {
			one.Top = append(one.Top, topLogprob{o.Token, logprob(o.Logprob), list(o.Bytes)})
		}
		out.Content = append(out.Content, one)
	}
	return out
}

// list is never null.
func list[T any](v []T) []T {
	if v == nil {
		return []T{}
	}
	return v
}

type message struct {
	Role    string  `json:"role"`
	Content string  `json:"content"`
	Refusal *string `json:"refusal"`
}

type choice struct {
	Index    uint32    `json:"index"`
	Message  message   `json:"message"`
	Logprobs *logprobs `json:"logprobs"`
	Finish   *string   `json:"finish_reason"`
	Receipt  string    `json:"leasehold_receipt,omitempty"`
}

// Chat is the body of a unary answer.
func Chat(c *openaiv1.ChatCompletion) ([]byte, error) {
	choices := []choice{}
	for _, o := range c.Choices {
		choices = append(choices, choice{o.Index, message{o.GetMessage().GetRole(), o.GetMessage().GetContent(), nil},
			logprobsOf(o.Logprobs), o.FinishReason, o.LeaseholdReceipt})
	}
	return encode(struct {
		head
		Choices []choice `json:"choices"`
		Usage   *usage   `json:"usage"`
	}{head{c.Id, c.Object, c.Created, c.Model, c.SystemFingerprint}, choices, usageOf(c.Usage)})
}

type delta struct {
	Role    *string `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
}

type chunkChoice struct {
	Index    uint32    `json:"index"`
	Delta    delta     `json:"delta"`
	Logprobs *logprobs `json:"logprobs"`
	Finish   *string   `json:"finish_reason"`
	Receipt  string    `json:"leasehold_receipt,omitempty"`
}

// ChatChunk is the data of one event. withUsage: every chunk has usage, null but in the last.
func ChatChunk(c *openaiv1.ChatCompletionChunk, withUsage bool) ([]byte, error) {
	choices := []chunkChoice{}
	for _, o := range c.Choices {
		choices = append(choices, chunkChoice{o.Index, delta{o.GetDelta().Role, o.GetDelta().Content}, logprobsOf(o.Logprobs), o.FinishReason, o.LeaseholdReceipt})
	}
	h := head{c.Id, c.Object, c.Created, c.Model, c.SystemFingerprint}
	if withUsage {
		return encode(struct {
			head
			Choices []chunkChoice `json:"choices"`
			Usage   *usage        `json:"usage"`
		}{h, choices, usageOf(c.Usage)})
	}
	return encode(struct {
		head
		Choices []chunkChoice `json:"choices"`
	}{h, choices})
}
