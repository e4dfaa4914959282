package flow

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"strconv"
	"time"

	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/fault"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/router/choose"
	"leasehold.dev/router/record"
	"leasehold.dev/router/verdict"
)

// Stream is a choice whose verdicts agree. It belongs to one goroutine.
type Stream struct {
	Route choose.Route

	a        *attempt
	ctx      context.Context
	end      context.CancelFunc
	tokens   *decodev1.Tokens // already here
	finished *decodev1.Finished
	ids      hash.Hash
	count    uint32
	first    time.Time
	account  *Account
}

// Account is what was said and verified of a choice that has finished. It is not changed.
type Account struct {
	Admission  *meshv1.Admission
	Admitted   *decodev1.Admitted
	Prefill    *meshv1.PrefillVerdict // nil: unsplit
	Decode     *meshv1.DecodeVerdict
	Finished   *decodev1.Finished
	Sampling   *decodev1.Sampling
	Route      choose.Route
	FirstToken time.Time
}

// Account is nil until Next has returned Finished: there is none of a choice that failed.
func (s *Stream) Account() *Account { return s.account }

// Next returns Tokens, or Finished as the last event. Finished's counts are checked against what was admitted and what
// came. A failure here is never retried.
func (s *Stream) Next() (*decodev1.Tokens, *decodev1.Finished, error) {
	t, f, err := s.tokens, s.finished, error(nil)
	if s.tokens, s.finished = nil, nil; t == nil && f == nil {
		limit := s.a.decode.limit(s.a.r.Times.Token, "token")
		t, f, err = s.a.decode.next()
		limit.Stop()
	}
	if err == nil && f != nil {
		err = s.finish(f)
	}
	if err == nil && t != nil {
		err = s.take(t)
	}
	if err != nil {
		s.a.note(func(c *record.Choice) { c.Error = errs.KindOf(err).String() + ": " + err.Error() })
		s.a.r.disagreement(s.a.job, hexOf(s.a.adm.Id), s.a.route, err)
		return nil, nil, err
	}
	return t, f, nil
}

func (s *Stream) take(t *decodev1.Tokens) error {
	if s.ids == nil {
		s.ids = sha256.New()
	}
	if len(t.Tokens) == 0 { // text waits for its token's message: a Tokens without one has no place in the stream
		return errs.Mark(&verdict.Disagreement{Field: "tokens", Got: "none", Want: "at least 1"}, errs.Corrupt)
	}
	var b [4]byte
	for _, one := range t.Tokens {
		binary.LittleEndian.PutUint32(b[:], uint32(one.Id))
		s.ids.Write(b[:])
		s.count++
	}
	if s.count > s.a.adm.MaxNewTokens {
		return differ("tokens", s.count, s.a.adm.MaxNewTokens)
	}
	return nil
}

func (s *Stream) finish(f *decodev1.Finished) error {
	if s.ids == nil {
		s.ids = sha256.New()
	}
	switch {
	case f.PromptTokens != s.a.adm.PromptTokens && !fault.Off(fault.Verdict):
		return differ("finished.prompt_tokens", f.PromptTokens, s.a.adm.PromptTokens)
	case s.count == 0:
		return errs.Mark(&verdict.Disagreement{Field: "finished.completion_tokens", Got: "0", Want: "at least 1"}, errs.Corrupt)
	case f.CompletionTokens != s.count:
		return differ("finished.completion_tokens", f.CompletionTokens, s.count)
	case f.Reason != decodev1.FinishReason_FINISH_REASON_STOP && f.Reason != decodev1.FinishReason_FINISH_REASON_LENGTH:
		return errs.New(errs.Corrupt, "decode worker %s finished for reason %v", s.a.route.Decode.ID, f.Reason)
	case string(f.OutputDigest) != string(s.ids.Sum(nil)):
		return errs.Mark(&verdict.Disagreement{Field: "finished.output_digest", Got: hexOf(f.OutputDigest), Want: hexOf(s.ids.Sum(nil))}, errs.Corrupt)
	case len(f.LogitDigest) != sha256.Size || bytes.Count(f.LogitDigest, []byte{0}) == sha256.Size:
		return errs.Mark(&verdict.Disagreement{Field: "finished.logit_digest", Got: hexOf(f.LogitDigest), Want: "32 bytes that are not all zero"}, errs.Corrupt)
	case f.NumericsClass != s.Route.Decode.Numerics:
		return errs.Mark(&verdict.Disagreement{Field: "finished.numerics_class", Got: f.NumericsClass, Want: s.Route.Decode.Numerics}, errs.Corrupt)
	}
	if p := s.Route.Prefill; fault.AnyOff() || p != nil && !p.GuardsOn { // what D cannot know
		f.GuardsOn = false
	}
	var pages uint32
	s.a.note(func(c *record.Choice) {
		c.Finished(f, Reason(f))
		pages = c.PagesMoved
	})
	s.a.r.Meter.Verified(f.PromptTokens, f.CompletionTokens, pages)
	s.account = &Account{Admission: s.a.adm, Admitted: s.a.admitted, Prefill: s.a.p, Decode: s.a.d, Finished: f,
		Sampling: s.a.job.Sampling, Route: s.Route, FirstToken: s.first}
	return nil
}

func differ(field string, got, want uint32) error {
	return errs.Mark(&verdict.Disagreement{Field: field, Got: strconv.Itoa(int(got)), Want: strconv.Itoa(int(want))}, errs.Corrupt)
}

// Reason is OpenAI's word for why f ended.
func Reason(f *decodev1.Finished) string {
	if f.GetReason() == decodev1.FinishReason_FINISH_REASON_LENGTH {
		return "length"
	}
	return "stop"
}

// Close ends the choice, however far it is. A choice that has not finished is cancelled at both workers.
func (s *Stream) Close() {
	s.a.close()
	s.end()
}
