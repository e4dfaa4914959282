package receipt

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
)

// Version of the claims.
const Version = 1

// Hex is bytes that are lower-case hex in JSON.
type Hex []byte

// MarshalText writes hex.
func (h Hex) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h), nil }

// UnmarshalText takes lower-case hex only; the whole payload is compared with its own encoding anyway.
func (h *Hex) UnmarshalText(b []byte) (err error) {
	*h, err = hex.DecodeString(string(b))
	return err
}

// Claims are what a receipt says. All fields are required; one that does not apply has its empty value, as said at it.
type Claims struct {
	Version       int            `json:"v"`
	ID            Hex            `json:"id"` // 16 bytes
	Request       Hex            `json:"request"`
	Choice        uint32         `json:"choice"` // index in the response
	Tenant        string         `json:"tenant"`
	Nonce         Hex            `json:"nonce"`         // 16 bytes
	PromptDigest  Hex            `json:"prompt_digest"` // proof.PromptDigest
	OutputDigest  Hex            `json:"output_digest"` // SHA-256 over the ids, int32 little endian
	LogitDigest   Hex            `json:"logit_digest"`  // SHA-256 over the digests of the logits, step by step
	Model         string         `json:"model"`
	ModelRevision Hex            `json:"model_revision"`
	Sampling      Sampling       `json:"sampling"`
	Numerics      string         `json:"numerics_class"`
	Workers       Halves[string] `json:"workers"`
	Leases        Halves[Hex]    `json:"leases"`    // SHA-256 of the ids
	Instances     Halves[Hex]    `json:"instances"` // of the brokers, 16 bytes
	Epochs        Halves[uint64] `json:"epochs"`
	Tokens        Tokens         `json:"tokens"`
	Pages         Pages          `json:"pages"`
	Root          Hex            `json:"root"` // of the transfer; empty when unsplit
	GuardsOn      bool           `json:"guards_on"`
	Verdict       string         `json:"verdict"` // [Equal]: there is no other receipt
	Finish        string         `json:"finish_reason"`
	Route         string         `json:"route"` // as in the header x-leasehold-route
	Mover         string         `json:"mover"` // none: unsplit
	Times         Times          `json:"times"`
	Audit         *Head          `json:"audit,omitempty"` // absent while no audit log is kept
}

// Equal is the verdict of a receipt: all views agreed.
const Equal = "equal"

// MoverNone is the mover of an unsplit request.
const MoverNone = "none"

// Halves is one value for each half of a request. Prefill is empty when the request was unsplit.
type Halves[T any] struct {
	Prefill T `json:"prefill"`
	Decode  T `json:"decode"`
}

// Sampling is what a replay needs, as the worker got it. An absent parameter has its value that means off.
type Sampling struct {
	Temperature       float32 `json:"temperature"`
	TopP              float32 `json:"top_p"`
	TopK              uint32  `json:"top_k"`
	MinP              float32 `json:"min_p"`
	FrequencyPenalty  float32 `json:"frequency_penalty"`
	PresencePenalty   float32 `json:"presence_penalty"`
	RepetitionPenalty float32 `json:"repetition_penalty"`
	LogitBias         []Bias  `json:"logit_bias"` // by ascending token
	Seed              uint64  `json:"seed,string"`
	StopDigest        Hex     `json:"stop_digest"` // empty: no stop strings
	IgnoreEOS         bool    `json:"ignore_eos"`
	MaxNew            uint32  `json:"max_new"`
}

// Bias is one entry of logit_bias.
type Bias struct {
	Token int32   `json:"token"`
	Bias  float32 `json:"bias"`
}

// Tokens are verified counts.
type Tokens struct {
	Prompt     uint32 `json:"prompt"`
	Completion uint32 `json:"completion"`
	From       uint32 `json:"from"` // rows before it were there already
	Rows       uint32 `json:"rows"` // moved and verified; 0 when unsplit
}

// Pages are verified counts.
type Pages struct {
	Reserved uint32 `json:"reserved"` // by decode
	Expected uint32 `json:"expected"` // to be moved, by decode's own reckoning
	Moved    uint32 `json:"moved"`
}

// Times are Unix milliseconds, by the router's clock.
type Times struct {
	Received   int64 `json:"received_ms"`
	FirstToken int64 `json:"first_token_ms"`
	Finished   int64 `json:"finished_ms"`
}

// Head is the newest signed head of the audit log when the receipt was made.
type Head struct {
	Sequence uint64 `json:"sequence"`
	Hash     Hex    `json:"hash"`
}

// StopDigest is SHA-256 over the length-framed stop strings (64-bit little endian lengths), in order; nil for none.
func StopDigest(stop []string) []byte {
	if len(stop) == 0 {
		return nil
	}
	h := sha256.New()
	for _, s := range stop {
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], uint64(len(s)))
		h.Write(n[:])
		h.Write([]byte(s))
	}
	return h.Sum(nil)
}

// encode is the one encoding of c.
func (c *Claims) encode() ([]byte, error) { return json.Marshal(c) }
