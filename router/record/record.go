package record

import (
	"context"
	"encoding/hex"
	"log/slog"
	"time"

	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

// Outcomes. Others are the kinds of package errs. The set is closed: it is a metric label.
const (
	Running   = "running"
	OK        = "ok"
	Cancelled = "cancelled"
	Refused   = "refused" // before a pair was chosen: key, body, limit or quota
)

// Request is one request of a tenant.
type Request struct {
	ID           string    `json:"id"`
	Tenant       string    `json:"tenant"`
	Model        string    `json:"model"`
	Endpoint     string    `json:"endpoint"`
	Stream       bool      `json:"stream"`
	Start        time.Time `json:"start"`
	PromptTokens uint32    `json:"prompt_tokens"`
	MaxNewTokens uint32    `json:"max_new_tokens"` // 0: the router's default
	Outcome      string    `json:"outcome"`
	Error        string    `json:"error,omitempty"` // kind and numbers, never text of the prompt
	FirstTokenMS float64   `json:"first_token_ms,omitempty"`
	TotalMS      float64   `json:"total_ms,omitempty"`
	Choices      []*Choice `json:"choices"`
}

// Choice is one admission, the last that was tried.
type Choice struct {
	Index            uint32  `json:"index"`
	Attempts         int     `json:"attempts"`
	Route            string  `json:"route"`
	AdmissionID      string  `json:"admission_id"`
	Mover            string  `json:"mover"`
	Prefill          string  `json:"prefill,omitempty"`
	Decode           string  `json:"decode"`
	PrefillBroker    string  `json:"prefill_broker,omitempty"`
	DecodeBroker     string  `json:"decode_broker"`
	PagesReserved    uint32  `json:"pages_reserved"`
	PrefillPages     uint32  `json:"prefill_pages"` // sealed by P, by its own count
	ExpectedPages    uint32  `json:"expected_pages"`
	PagesMoved       uint32  `json:"pages_moved"` // verified by D
	BytesMoved       uint64  `json:"bytes_moved"`
	PrefillRows      uint32  `json:"prefill_rows"`
	DecodeRows       uint32  `json:"decode_rows"`
	Root             string  `json:"root,omitempty"`
	PrefillRoot      string  `json:"prefill_root,omitempty"`
	VerdictsEqual    bool    `json:"verdicts_equal"`
	PromptTokens     uint32  `json:"prompt_tokens"` // verified
	CompletionTokens uint32  `json:"completion_tokens"`
	FinishReason     string  `json:"finish_reason,omitempty"`
	OutputDigest     string  `json:"output_digest,omitempty"`
	LogitDigest      string  `json:"logit_digest,omitempty"`
	NumericsClass    string  `json:"numerics_class,omitempty"`
	GuardsOn         bool    `json:"guards_on"`
	AdmitMS          float64 `json:"admit_ms"`    // until D had reserved and the Pull was attached
	PrefillMS        float64 `json:"prefill_ms"`  // P's call
	ComputeMS        float64 `json:"compute_ms"`  // P's own count
	TransferMS       float64 `json:"transfer_ms"` // D's own count
	VerifyMS         float64 `json:"verify_ms"`   // D's own count
	FirstTokenMS     float64 `json:"first_token_ms"`
	DecodeMS         float64 `json:"decode_ms"`
	Error            string  `json:"error,omitempty"`
}

// MS is d in milliseconds.
func MS(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Verdicts takes over what both halves said. Either may be nil.
func (c *Choice) Verdicts(p *meshv1.PrefillVerdict, d *meshv1.DecodeVerdict) {
	c.PrefillPages, c.PrefillRows, c.PrefillRoot = p.GetPages(), p.GetRows(), hex.EncodeToString(p.GetRoot())
	c.ComputeMS = float64(p.GetComputeUs()) / 1000
	c.ExpectedPages, c.PagesMoved, c.DecodeRows = d.GetExpectedPages(), d.GetPages(), d.GetRows()
	c.BytesMoved, c.Root = d.GetBytesMoved(), hex.EncodeToString(d.GetRoot())
	c.TransferMS, c.VerifyMS = float64(d.GetTransferUs())/1000, float64(d.GetVerifyUs())/1000
}

// Finished takes over D's last word.
func (c *Choice) Finished(f *decodev1.Finished, reason string) {
	c.PromptTokens, c.CompletionTokens, c.FinishReason = f.GetPromptTokens(), f.GetCompletionTokens(), reason
	c.OutputDigest, c.LogitDigest = hex.EncodeToString(f.GetOutputDigest()), hex.EncodeToString(f.GetLogitDigest())
	c.NumericsClass, c.GuardsOn = f.GetNumericsClass(), f.GetGuardsOn()
	c.DecodeMS = float64(f.GetDecodeUs()) / 1000
}

// Log writes r as one line, and one for each choice.
func (r *Request) Log(log *slog.Logger) {
	level := slog.LevelInfo
	if r.Outcome != OK && r.Outcome != Cancelled && r.Outcome != Refused {
		level = slog.LevelWarn
	}
	log.Log(context.Background(), level, "request", "request", r.ID, "tenant", r.Tenant, "endpoint", r.Endpoint, "outcome", r.Outcome,
		"prompt_tokens", r.PromptTokens, "choices", len(r.Choices), "first_token_ms", r.FirstTokenMS, "total_ms", r.TotalMS, "err", r.Error)
	for _, c := range r.Choices {
		log.Log(context.Background(), level, "choice", "request", r.ID, "index", c.Index, "attempts", c.Attempts, "route", c.Route,
			"prefill", c.Prefill, "decode", c.Decode, "pages_expected", c.ExpectedPages, "pages_sealed", c.PrefillPages,
			"pages_moved", c.PagesMoved, "bytes", c.BytesMoved, "verdicts_equal", c.VerdictsEqual,
			"completion_tokens", c.CompletionTokens, "err", c.Error)
	}
}
