package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"

	"google.golang.org/protobuf/encoding/protojson"

	"leasehold.dev/model"
	"leasehold.dev/model/chat"
	"leasehold.dev/protos/errs"
	openaiv1 "leasehold.dev/protos/gen/leasehold/openai/v1"
	"leasehold.dev/protos/receipt"
	"leasehold.dev/router/prompt"
	"leasehold.dev/router/rest"
	"leasehold.dev/router/validate"
)

// request is what a tenant once sent: a body of one of the two endpoints, or plain text.
type request struct {
	chat   bool
	body   []byte // JSON
	fields map[string]json.RawMessage
}

func readRequest(path string) (*request, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, errs.New(errs.Invalid, "--prompt: %w", err)
	}
	r := &request{body: b}
	if json.Unmarshal(b, &r.fields) != nil || r.fields["messages"] == nil && r.fields["prompt"] == nil {
		text, err := json.Marshal(string(b))
		if err != nil {
			return nil, errs.New(errs.Invalid, "--prompt: %w", err)
		}
		r.fields = map[string]json.RawMessage{"model": json.RawMessage(`"m"`), "prompt": text}
		if r.body, err = json.Marshal(r.fields); err != nil {
			return nil, errs.New(errs.Invalid, "--prompt: %w", err)
		}
	}
	r.chat = r.fields["messages"] != nil
	return r, nil
}

// tokens are the ids that the router makes of it, and its stop strings.
func (r *request) tokens(m *model.Model) (ids []int32, stop []string, err error) {
	check := rest.Completion
	if r.chat {
		check = rest.Chat
	}
	clean, err := check(r.body)
	if err != nil {
		return nil, nil, errs.New(errs.Invalid, "--prompt: %w", err)
	}
	encoder := prompt.New(m.Tokenizer, nil)
	if m.Template != nil {
		encoder = prompt.New(m.Tokenizer, m.Template)
	}
	vocab := uint32(m.Tokenizer.Vocab())
	lax := protojson.UnmarshalOptions{DiscardUnknown: true}
	if !r.chat {
		in := &openaiv1.CompletionsRequest{}
		if err := lax.Unmarshal(clean.JSON, in); err != nil {
			return nil, nil, errs.New(errs.Invalid, "--prompt: it is no request")
		}
		v, err := validate.Completion(in, vocab)
		if err != nil {
			return nil, nil, errs.New(errs.Invalid, "--prompt: %w", err)
		}
		if v.PromptIDs != nil {
			return v.PromptIDs, v.Sampling.Stop, nil
		}
		return encoder.Text(v.Prompt), v.Sampling.Stop, nil
	}
	in := &openaiv1.ChatCompletionsRequest{}
	if err := lax.Unmarshal(clean.JSON, in); err != nil {
		return nil, nil, errs.New(errs.Invalid, "--prompt: it is no request")
	}
	v, err := validate.Chat(in, vocab)
	if err != nil {
		return nil, nil, errs.New(errs.Invalid, "--prompt: %w", err)
	}
	turns := make([]chat.Message, len(v.Messages))
	for i, one := range v.Messages {
		turns[i] = chat.Message(one)
	}
	ids, err = encoder.Chat(turns)
	return ids, v.Sampling.Stop, err
}

// again is the body that asks for the same tokens: what was sent, with the receipt's sampling.
func (r *request) again(c *receipt.Claims) ([]byte, error) {
	s := c.Sampling
	if s.IgnoreEOS {
		return nil, errs.New(errs.Invalid, "replay: the receipt's request went on after the end of the text, which cannot be asked for")
	}
	out := map[string]any{"model": c.Model, "temperature": s.Temperature, "top_k": s.TopK, "min_p": s.MinP, "frequency_penalty": s.FrequencyPenalty,
		"presence_penalty": s.PresencePenalty, "seed": int64(s.Seed), "max_tokens": s.MaxNew}
	for _, text := range []string{"messages", "prompt", "stop"} {
		if v := r.fields[text]; v != nil {
			out[text] = v
		}
	}
	if s.TopP > 0 { // 0 is off, for which the API has no other word than absence
		out["top_p"] = s.TopP
	}
	if s.RepetitionPenalty > 0 {
		out["repetition_penalty"] = s.RepetitionPenalty
	}
	bias := map[int32]float32{}
	for _, b := range s.LogitBias {
		bias[b.Token] = b.Bias
	}
	out["logit_bias"] = bias
	return json.Marshal(out)
}

// replay asks the mesh for the same answer, and compares the two receipts.
func (c *verifyCommand) replay(ctx context.Context, s streams, keys receipt.Keys, was *receipt.Claims, r *request) error {
	url, key, err := c.find()
	if err != nil {
		return err
	}
	body, err := r.again(was)
	if err != nil {
		return err
	}
	path := "/v1/completions"
	if r.chat {
		path = "/v1/chat/completions"
	}
	b, err := fetch(ctx, http.MethodPost, url+path, key, body)
	if err != nil {
		return err
	}
	var answer struct {
		Choices []struct {
			Receipt string `json:"leasehold_receipt"`
		} `json:"choices"`
	}
	if err := json.Unmarshal(b, &answer); err != nil || len(answer.Choices) != 1 || answer.Choices[0].Receipt == "" {
		return errs.New(errs.Corrupt, "replay: the answer has no receipt")
	}
	now, err := keys.Verify(answer.Choices[0].Receipt)
	if err != nil {
		return err
	}
	return compare(s, was, now)
}

// compare is Unavailable where the two cannot be compared, and Corrupt where they differ.
func compare(s streams, was, now *receipt.Claims) error {
	switch {
	case !bytes.Equal(was.ModelRevision, now.ModelRevision):
		return errs.New(errs.Unavailable, "replay: the mesh serves revision %x now, the receipt's is %x", []byte(now.ModelRevision), []byte(was.ModelRevision))
	case was.Numerics != now.Numerics:
		return errs.New(errs.Unavailable, "replay: it ran in numerics class %s, the receipt's is %s: their bits do not compare", now.Numerics, was.Numerics)
	case was.Tokens.Prompt != now.Tokens.Prompt:
		return errs.New(errs.Corrupt, "replay: the prompt has %d tokens, the receipt's %d", now.Tokens.Prompt, was.Tokens.Prompt)
	case !bytes.Equal(was.OutputDigest, now.OutputDigest) || was.Tokens.Completion != now.Tokens.Completion:
		return errs.New(errs.Corrupt, "replay: DIFFERENT TOKENS: %d with digest %x, the receipt's are %d with digest %x", now.Tokens.Completion, []byte(now.OutputDigest),
			was.Tokens.Completion, []byte(was.OutputDigest))
	case !bytes.Equal(was.LogitDigest, now.LogitDigest):
		return errs.New(errs.Corrupt, "replay: the same tokens from DIFFERENT LOGITS: digest %x, the receipt's is %x", []byte(now.LogitDigest), []byte(was.LogitDigest))
	}
	s.sayf("replay     the same %d tokens from the same logits, by %s and %s", now.Tokens.Completion, orNone(now.Workers.Prefill), now.Workers.Decode)
	return nil
}

func orNone(s string) string {
	if s == "" {
		return "no prefill"
	}
	return s
}
