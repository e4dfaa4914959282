package receipt

import (
	"bytes"
	"crypto/sha256"
	"math"
	"unicode/utf8"

	"leasehold.dev/protos/errs"
)

// Bounds of a receipt.
const (
	MaxName = 256     // bytes of a tenant's, model's or worker's name
	MaxBias = 1 << 10 // entries of logit_bias; a request with more gets no receipt, so the router refuses it
	MaxJWS  = 256 << 10
	idSize  = 16
)

// Check is nil when every field has a value that a receipt may have, else Invalid with the field's name.
func (c *Claims) Check() error {
	k := &checker{}
	k.want(c.Version == Version, "v", "%d, want %d", c.Version, Version)
	k.raw("id", c.ID, idSize)
	k.raw("request", c.Request, idSize)
	k.raw("nonce", c.Nonce, idSize)
	k.raw("prompt_digest", c.PromptDigest, sha256.Size)
	k.raw("output_digest", c.OutputDigest, sha256.Size)
	k.raw("logit_digest", c.LogitDigest, sha256.Size)
	k.raw("model_revision", c.ModelRevision, sha256.Size)
	k.name("tenant", c.Tenant)
	k.name("model", c.Model)
	k.name("numerics_class", c.Numerics)
	k.name("route", c.Route)
	k.name("mover", c.Mover)
	k.want(c.Verdict == Equal, "verdict", "%d bytes, want %q", len(c.Verdict), Equal)
	k.want(c.Finish == "stop" || c.Finish == "length", "finish_reason", "%d bytes, want stop or length", len(c.Finish))
	c.halves(k)
	c.counts(k)
	c.Sampling.check(k)
	t := c.Times
	k.want(t.Received > 0 && t.FirstToken >= t.Received && t.Finished >= t.FirstToken, "times",
		"received %d, first token %d, finished %d", t.Received, t.FirstToken, t.Finished)
	if c.Audit != nil {
		k.raw("audit.hash", c.Audit.Hash, sha256.Size)
	}
	return k.err
}

// Split reports whether pages moved.
func (c *Claims) Split() bool { return c.Mover != MoverNone }

func (c *Claims) halves(k *checker) {
	k.name("workers.decode", c.Workers.Decode)
	k.raw("leases.decode", c.Leases.Decode, sha256.Size)
	k.raw("instances.decode", c.Instances.Decode, idSize)
	k.want(c.Epochs.Decode > 0, "epochs.decode", "0")
	if c.Split() {
		k.name("workers.prefill", c.Workers.Prefill)
		k.raw("leases.prefill", c.Leases.Prefill, sha256.Size)
		k.raw("instances.prefill", c.Instances.Prefill, idSize)
		k.want(c.Epochs.Prefill > 0, "epochs.prefill", "0")
		k.raw("root", c.Root, sha256.Size)
		return
	}
	k.want(c.Workers.Prefill == "" && len(c.Leases.Prefill)+len(c.Instances.Prefill)+len(c.Root) == 0 && c.Epochs.Prefill == 0,
		"prefill", "named by an unsplit receipt")
}

func (c *Claims) counts(k *checker) {
	t, p := c.Tokens, c.Pages
	k.want(t.Prompt > 0 && t.Completion > 0 && t.Completion <= c.Sampling.MaxNew, "tokens", "%d of the prompt, %d new of at most %d",
		t.Prompt, t.Completion, c.Sampling.MaxNew)
	k.want(uint64(p.Reserved) == (uint64(t.Prompt)+uint64(c.Sampling.MaxNew)-1+63)/64, "pages.reserved", "%d for %d tokens and %d new",
		p.Reserved, t.Prompt, c.Sampling.MaxNew)
	k.want(p.Moved == p.Expected, "pages", "%d moved, %d expected", p.Moved, p.Expected)
	if c.Split() {
		k.want(t.Prompt > 1 && uint64(t.From)+uint64(t.Rows) == uint64(t.Prompt)-1 && t.Rows > 0 && p.Moved > 0, "tokens.rows",
			"%d from %d in %d pages, for %d tokens", t.Rows, t.From, p.Moved, t.Prompt)
		return
	}
	k.want(t.From == 0 && t.Rows == 0 && p.Moved == 0, "tokens.rows", "%d from %d in %d pages, of an unsplit receipt", t.Rows, t.From, p.Moved)
}

func (s *Sampling) check(k *checker) {
	for _, v := range []float32{s.Temperature, s.TopP, s.MinP, s.FrequencyPenalty, s.PresencePenalty, s.RepetitionPenalty} {
		k.finite("sampling", v)
	}
	k.want(s.MaxNew > 0, "sampling.max_new", "0")
	k.want(s.LogitBias != nil && len(s.LogitBias) <= MaxBias, "sampling.logit_bias", "%d entries, at most %d, or no list", len(s.LogitBias), MaxBias)
	for i, b := range s.LogitBias {
		k.want(b.Token >= 0 && (i == 0 || s.LogitBias[i-1].Token < b.Token), "sampling.logit_bias", "entry %d: token %d, want ascending ones", i, b.Token)
		k.finite("sampling.logit_bias", b.Bias)
	}
	if len(s.StopDigest) != 0 {
		k.raw("sampling.stop_digest", s.StopDigest, sha256.Size)
	}
}

// checker keeps the first error.
type checker struct{ err error }

func (k *checker) want(ok bool, field, format string, args ...any) {
	if !ok && k.err == nil {
		k.err = errs.New(errs.Invalid, "receipt: "+field+": "+format, args...)
	}
}

// raw wants size bytes that are not all zero.
func (k *checker) raw(field string, b []byte, size int) {
	k.want(len(b) == size && bytes.Count(b, []byte{0}) != size, field, "%d bytes, want %d that are not all zero", len(b), size)
}

func (k *checker) name(field, s string) {
	k.want(s != "" && len(s) <= MaxName && utf8.ValidString(s), field, "%d bytes, want 1 to %d of UTF-8", len(s), MaxName)
}

func (k *checker) finite(field string, v float32) {
	k.want(!math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0), field, "%v", v)
}
