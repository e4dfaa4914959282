package doctor

import (
	"time"

	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

// Said is one process and what it answered. Status is of a worker, Broker of a broker; both nil: it did not answer, or is a
// router, which says its numbers in Meta.
type Said struct {
	Service, ID string
	Passing     bool // in the registry
	Took        time.Duration
	Err         string // why there is no answer
	Meta        map[string]string
	Status      *meshv1.WorkerStatus
	Broker      *brokerv1.DescribeResponse
}

// Report is everything that was found. Its JSON is for scripts; fields are added, never renamed.
type Report struct {
	OK        bool      `json:"ok"` // no finding
	Findings  []Finding `json:"findings"`
	Routers   []Router  `json:"routers"`
	Workers   []Worker  `json:"workers"`
	Brokers   []Broker  `json:"brokers"`
	Pairs     []Pair    `json:"pairs"`
	Effective uint32    `json:"effective_tokens"` // what /v1/models shows: what every ready pair can hold
	Largest   uint32    `json:"largest_tokens"`   // the longest request that some ready pair can hold
}

// Finding is a reason not to go on.
type Finding struct {
	Check   string `json:"check"` // one of the Check constants
	Service string `json:"service,omitempty"`
	ID      string `json:"id,omitempty"`
	Text    string `json:"text"` // with the numbers
}

// What is checked.
const (
	CheckMissing    = "missing"    // fewer processes than are wanted
	CheckListed     = "listed"     // in the registry, not passing
	CheckAnswer     = "answer"     // no answer, or one without its numbers
	CheckReady      = "ready"      // it says that it is not ready
	CheckLimits     = "limits"     // a promise above a derived limit
	CheckGuards     = "guards"     // runs with its guards off
	CheckAttached   = "attached"   // not attached to the broker instance that answers: a stale view
	CheckCompatible = "compatible" // layout, weights, tokenizer or numerics class differ
	CheckPairs      = "pairs"      // no partner
)

// Router is one router's promise.
type Router struct {
	ID      string `json:"id"`
	Passing bool   `json:"passing"`
	Promise uint32 `json:"promise_tokens"`
}

// Worker is one worker's numbers.
type Worker struct {
	Service   string `json:"service"`
	ID        string `json:"id"`
	Passing   bool   `json:"passing"`
	Ready     bool   `json:"ready"`
	Promise   uint32 `json:"promise_tokens"`
	Derived   uint32 `json:"derived_tokens"`
	Effective uint32 `json:"effective_tokens"` // the smaller of the two
	Broker    string `json:"broker"`
	Pages     uint32 `json:"pool_pages"`
	Layout    string `json:"layout_hash"`
	Revision  string `json:"model_revision"`
	Numerics  string `json:"numerics_class"`
	GuardsOn  bool   `json:"guards_on"`
	AnswerMS  int64  `json:"answer_ms"`
}

// Broker is one pool.
type Broker struct {
	ID         string `json:"id"`
	Passing    bool   `json:"passing"`
	Instance   string `json:"instance"`
	Pages      uint32 `json:"pool_pages"`
	Free       uint32 `json:"free_pages"`
	Quarantine uint32 `json:"quarantined_pages"`
	Layout     string `json:"layout_hash"`
	Revision   string `json:"model_revision"`
	Numerics   string `json:"numerics_class"`
	AnswerMS   int64  `json:"answer_ms"`
}

// Pair is one way to serve.
type Pair struct {
	Prefill   string `json:"prefill"`
	Decode    string `json:"decode"`
	Mover     string `json:"mover"` // empty: they do not fit together
	Effective uint32 `json:"effective_tokens"`
	Why       string `json:"why,omitempty"` // why they do not fit, or cannot be picked now
}
