package event

// Kinds of a router's records.
const (
	KindAdmission    = "admission"
	KindResponse     = "response"
	KindDisagreement = "disagreement"
	KindRetry        = "retry"
)

type (
	// Admission says that a ticket was signed, before anybody has it. A request has one for each choice and attempt.
	Admission struct {
		Request       string `json:"request"`
		Admission     string `json:"admission"`
		Tenant        string `json:"tenant"`
		Attempt       int    `json:"attempt"`
		Route         string `json:"route"`
		Mover         string `json:"mover"`
		Prefill       string `json:"prefill,omitempty"`
		PrefillBroker string `json:"prefill_broker,omitempty"`
		Decode        string `json:"decode"`
		DecodeBroker  string `json:"decode_broker"`
		PromptTokens  uint32 `json:"prompt_tokens"`
		MaxNewTokens  uint32 `json:"max_new_tokens"`
		PromptDigest  string `json:"prompt_digest"`
		Internal      bool   `json:"internal,omitempty"` // a replay: the answer goes to nobody, and there is no response
	}

	// Response says how a request of a tenant's ended, before its last byte goes out.
	Response struct {
		Request  string   `json:"request"`
		Tenant   string   `json:"tenant"`
		Endpoint string   `json:"endpoint"`
		Model    string   `json:"model"`
		Stream   bool     `json:"stream"`
		Outcome  string   `json:"outcome"`
		StartMS  int64    `json:"start_unix_ms"`
		TotalUS  int64    `json:"total_us"`
		Choices  []Choice `json:"choices"`
	}

	// Choice is one answer of a response. Its counts are the verified ones; 0 when nothing was verified.
	Choice struct {
		Admission        string `json:"admission"` // the last attempt's
		Prefill          string `json:"prefill,omitempty"`
		Decode           string `json:"decode"`
		VerdictsEqual    bool   `json:"verdicts_equal"`
		Error            string `json:"error,omitempty"` // kind, and numbers
		PromptTokens     uint32 `json:"prompt_tokens"`
		CompletionTokens uint32 `json:"completion_tokens"`
		Pages            uint32 `json:"pages"` // moved and verified
		Root             string `json:"root,omitempty"`
		OutputDigest     string `json:"output_digest,omitempty"`
		LogitDigest      string `json:"logit_digest,omitempty"`
		FinishReason     string `json:"finish_reason,omitempty"`
		GuardsOn         bool   `json:"guards_on"`
	}

	// Disagreement says that two views of one admission differ, or that a worker refused what was admitted.
	Disagreement struct {
		Request   string `json:"request"`
		Admission string `json:"admission"`
		Field     string `json:"field"`
		Error     string `json:"error"` // kind
		Reason    string `json:"reason"`
	}

	// Retry says what became of an attempt that was lost before the first token.
	Retry struct {
		Request   string `json:"request"`
		Admission string `json:"admission"` // the lost one
		Result    string `json:"result"`    // taken, no_budget, no_pair
		Reason    string `json:"reason"`
	}
)

// Pair is "prefill/decode" of the choice; an unsplit one has nothing for prefill.
func (c Choice) Pair() string { return c.Prefill + "/" + c.Decode }

// Pair is as [Choice.Pair].
func (a Admission) Pair() string { return a.Prefill + "/" + a.Decode }

// Kind of the record.
func (Admission) Kind() string { return KindAdmission }

// Kind of the record.
func (Response) Kind() string { return KindResponse }

// Kind of the record.
func (Disagreement) Kind() string { return KindDisagreement }

// Kind of the record.
func (Retry) Kind() string { return KindRetry }
