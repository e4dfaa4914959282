package router

import (
	"flag"
	"time"

	"leasehold.dev/mesh"
	"leasehold.dev/protos/errs"
	"leasehold.dev/router/flow"
	"leasehold.dev/router/receipt"
	"leasehold.dev/router/replay"
)

// Config is all that the router is told.
type Config struct {
	Mesh         mesh.Config
	HTTP         string // host:port for tenants: REST, and gRPC over HTTP/2
	Model        string // GGUF file: name, tokenizer, chat template and revision
	Keys         string // file, see package keys
	AdmissionKey string // file with the Ed25519 private key, PEM
	ReceiptKey   string // file, see package receipt; open reports are beside it
	Receipts     receipt.Limits
	Replay       replay.Policy
	Promise      uint // most tokens of a request; 0: the model's own context length
	MaxTokens    uint // max_tokens of a chat request that has none
	UnsplitBelow uint
	RetryRatio   float64
	Times        flow.Times
}

// Flags adds the settings of c to fs.
func (c *Config) Flags(fs *flag.FlagSet) {
	c.Mesh.Service = "router"
	c.Mesh.Flags(fs)
	t := flow.DefaultTimes
	c.Times.Grace = t.Grace
	fs.StringVar(&c.HTTP, "http", "127.0.0.1:0", "`address` for tenants: REST, and gRPC over HTTP/2")
	fs.StringVar(&c.Model, "model", "", "`file` of the model, GGUF")
	fs.StringVar(&c.Keys, "keys", "", "`file` with the tenants' keys as SHA-256; it is watched")
	fs.StringVar(&c.AdmissionKey, "admission-key", "", "`file` with the Ed25519 private key that signs admissions, PEM")
	c.Receipts = receipt.DefaultLimits
	fs.StringVar(&c.ReceiptKey, "receipt-key", "", "`file` with the key that signs receipts, and the public ones before it; made when it is not there")
	fs.DurationVar(&c.Receipts.Keep, "receipt-keep", c.Receipts.Keep, "`time` that receipts are kept for their tenants")
	fs.IntVar(&c.Receipts.Count, "receipt-count", c.Receipts.Count, "most `receipts` that are kept; the oldest go first")
	fs.Int64Var(&c.Receipts.Bytes, "receipt-bytes", c.Receipts.Bytes, "most `bytes` of receipts that are kept; the oldest go first")
	fs.Float64Var(&c.Replay.Share, "replay-share", 0.01, "`share` of requests that are sampled to be run again; the longest ones always are")
	fs.Float64Var(&c.Replay.Budget, "replay-budget", 0.01, "most tokens of sampled replays, as a `share` of the tokens served (0: nothing is ever run again)")
	fs.Int64Var(&c.Replay.Bytes, "replay-bytes", 64<<20, "most `bytes` of requests that wait to be run again")
	fs.UintVar(&c.Promise, "promise", 0, "most `tokens` of a request that tenants are promised (default: the model's context length)")
	fs.UintVar(&c.MaxTokens, "max-tokens", 1024, "new `tokens` of a chat request that does not say how many")
	fs.UintVar(&c.UnsplitBelow, "unsplit-below", 0, "prompts of up to this many `tokens` may be computed by decode itself (0: never while a pair is ready)")
	fs.Float64Var(&c.RetryRatio, "retry-ratio", 0.1, "`share` of requests that may be tried a second time")
	fs.DurationVar(&c.Times.Admit, "admit-timeout", t.Admit, "`time` that a decode worker has to reserve")
	fs.DurationVar(&c.Times.Verdict, "first-token-timeout", t.Verdict, "`time` from there to both verdicts and the first token")
	fs.DurationVar(&c.Times.Token, "token-timeout", t.Token, "`time` between two tokens")
	fs.DurationVar(&c.Times.Request, "request-timeout", t.Request, "`time` of a whole request")
}

func (c *Config) check() error {
	for _, need := range []struct{ flag, value string }{{"model", c.Model}, {"keys", c.Keys}, {"admission-key", c.AdmissionKey}, {"receipt-key", c.ReceiptKey},
		{"registry", c.Mesh.Registry}} {
		if need.value == "" {
			return errs.New(errs.Invalid, "-%s is needed", need.flag)
		}
	}
	for name, v := range map[string]uint{"promise": c.Promise, "max-tokens": c.MaxTokens, "unsplit-below": c.UnsplitBelow} {
		if v > 1<<31 {
			return errs.New(errs.Invalid, "-%s is %d, at most %d", name, v, 1<<31)
		}
	}
	for name, d := range map[string]time.Duration{"admit-timeout": c.Times.Admit, "first-token-timeout": c.Times.Verdict,
		"token-timeout": c.Times.Token, "request-timeout": c.Times.Request} {
		if d <= 0 {
			return errs.New(errs.Invalid, "-%s is %v, it must be above 0", name, d)
		}
	}
	if r := c.Replay; !(r.Share >= 0 && r.Share <= 1 && r.Budget >= 0 && r.Budget <= 1) || r.Bytes <= 0 {
		return errs.New(errs.Invalid, "-replay-share is %v, -replay-budget %v, each must be 0 to 1; -replay-bytes is %d and must be above 0", r.Share, r.Budget, r.Bytes)
	}
	if c.MaxTokens == 0 || c.RetryRatio < 0 || c.RetryRatio > 1 {
		return errs.New(errs.Invalid, "-max-tokens is %d and must be above 0; -retry-ratio is %v and must be 0 to 1", c.MaxTokens, c.RetryRatio)
	}
	return nil
}
