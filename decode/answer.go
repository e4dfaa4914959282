package decode

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"sync"
	"time"

	"leasehold.dev/decode/sample"
	"leasehold.dev/gpu/runner"
	"leasehold.dev/model/tokenizer"
	"leasehold.dev/protos/errs"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
)

// answer turns steps into tokens and text, and decides when it is enough. It is the sequence's handler: Step runs on the
// engine's loop, take on the request's goroutine. Messages wait in it for a slow client: at most max_new_tokens of them.
type answer struct {
	tok       *tokenizer.Tokenizer
	sampler   *sample.Sampler
	stream    *tokenizer.Stream
	stops     stops
	most      uint32 // tokens
	ignoreEnd bool
	logprobs  bool
	news      chan struct{} // one token: there may be something to take

	// Of the loop; readable by anyone once the task is done. prompt and fed do not change after the first token was put.
	reason      decodev1.FinishReason
	prompt      uint32  // rows when the first token was sampled
	fed         []int32 // ids that were appended until then
	count       uint32
	ids, logits hash.Hash
	first, last time.Time

	mu      sync.Mutex
	waiting []*decodev1.Tokens
}

func newAnswer(tok *tokenizer.Tokenizer, s *decodev1.Sampling, prompt []int32, most uint32) (*answer, error) {
	p, err := params(s)
	if err != nil {
		return nil, err
	}
	sampler, err := sample.New(p, tok.Vocab(), prompt)
	if err != nil {
		return nil, err
	}
	return &answer{
		tok: tok, sampler: sampler, stream: tok.NewStream(), stops: stops{list: s.GetStop()}, most: most,
		ignoreEnd: s.GetIgnoreEos(), logprobs: p.Logprobs, news: make(chan struct{}, 1), ids: sha256.New(), logits: sha256.New(),
	}, nil
}

// Step implements runner.Handler.
func (a *answer) Step(o runner.Outcome) (next int32, more bool, err error) {
	if a.count == 0 {
		a.fed = append(a.fed, o.Fed...)
	}
	if !o.Last {
		return 0, false, nil
	}
	if o.Logits == nil || o.LogitDigest.IsZero() {
		return 0, false, errs.New(errs.Corrupt, "engine: %d logits with digest %v", len(o.Logits), o.LogitDigest)
	}
	c := a.sampler.Next(o.Logits, o.Length)
	a.last = time.Now()
	if a.count == 0 {
		a.prompt, a.first = o.Length, a.last
	}
	a.count++
	a.ids.Write(binary.LittleEndian.AppendUint32(nil, uint32(c.ID)))
	a.logits.Write(o.LogitDigest[:])
	text := a.text(c.ID)
	a.put(&decodev1.Tokens{Tokens: []*decodev1.TokenInfo{a.info(c)}, Text: text})
	return c.ID, a.reason == decodev1.FinishReason_FINISH_REASON_UNSPECIFIED, nil
}

// text is what may be shown after id, and sets the reason when the answer ends with it.
func (a *answer) text(id int32) string {
	show, hit := a.stops.push(a.stream.Push(id))
	switch {
	case hit, !a.ignoreEnd && a.tok.IsEOG(id):
		a.reason = decodev1.FinishReason_FINISH_REASON_STOP
	case a.count == a.most:
		a.reason = decodev1.FinishReason_FINISH_REASON_LENGTH
	default:
		return show
	}
	if hit {
		return show
	}
	broken, hit := a.stops.push(a.stream.Flush())
	if hit {
		a.reason = decodev1.FinishReason_FINISH_REASON_STOP
		return show + broken
	}
	return show + broken + a.stops.rest()
}

func (a *answer) info(c sample.Choice) *decodev1.TokenInfo {
	t := &decodev1.TokenInfo{Id: c.ID}
	if !a.logprobs {
		return t
	}
	t.Logprob, t.TokenBytes = c.Logprob, a.tok.Piece(c.ID)
	for _, top := range c.Top {
		t.Top = append(t.Top, &decodev1.TopLogprob{Id: top.ID, Logprob: top.Logprob, TokenBytes: a.tok.Piece(top.ID)})
	}
	return t
}

func (a *answer) put(t *decodev1.Tokens) {
	a.mu.Lock()
	a.waiting = append(a.waiting, t)
	a.mu.Unlock()
	select {
	case a.news <- struct{}{}:
	default:
	}
}

// take returns the messages that nobody has taken, oldest first.
func (a *answer) take() []*decodev1.Tokens {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := a.waiting
	a.waiting = nil
	return out
}

// finished is the answer's last message. The task is done, and ended well.
func (a *answer) finished(began time.Time) *decodev1.Finished {
	return &decodev1.Finished{
		Reason: a.reason, PromptTokens: a.prompt, CompletionTokens: a.count, OutputDigest: a.ids.Sum(nil), LogitDigest: a.logits.Sum(nil),
		FirstTokenUs: uint64(a.first.Sub(began).Microseconds()), DecodeUs: uint64(a.last.Sub(a.first).Microseconds()),
	}
}
