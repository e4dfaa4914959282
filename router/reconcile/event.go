package reconcile

import (
	"time"

	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

// Event is something that the core is told. The set is closed.
type Event interface{ event() }

type (
	// Decided is the router's own view of an admission, once it is over before the first token: answered or not.
	Decided struct {
		At       time.Time
		Answered bool // the first token may go out
		View     View
	}

	// Recorded is one response of a broker's RecordService. An empty one tells the time only.
	Recorded struct {
		At       time.Time
		Broker   string // the name in its certificate
		Instance string
		Records  []*brokerv1.LeaseRecord
	}

	// Tick lets time pass.
	Tick struct{ At time.Time }
)

func (Decided) event()  {}
func (Recorded) event() {}
func (Tick) event()     {}

// View is all that the router has of an admission. Nothing in it is changed later.
type View struct {
	Admission *meshv1.Admission
	Admitted  *decodev1.Admitted     // nil when D never said so
	Decode    *meshv1.DecodeVerdict  // nil: none came
	Prefill   *meshv1.PrefillVerdict // nil: none came, or unsplit
}

// The closed set of fields: it is a metric's label.
const (
	FieldPrefillMissing = "prefill.missing" // no record of P's broker in time
	FieldDecodeMissing  = "decode.missing"  // no record of D's broker in time
	FieldPrefillOutcome = "prefill.outcome" // P's half failed, and the request was answered or D's half went well
	FieldDecodeOutcome  = "decode.outcome"  // D's half failed, and the request was answered
	FieldPrefillRows    = "prefill.rows"    // rows that P's broker counted
	FieldDecodeRows     = "decode.rows"     // rows that D's broker found
	FieldPrefillPages   = "prefill.pages"   // pages sealed at P
	FieldDecodePages    = "decode.pages"    // pages verified at D
	FieldReserved       = "decode.reserved" // pages that D holds for the request
	FieldFrom           = "from_token"      // first row that was moved
	FieldRoot           = "root"            // over the page digests
	FieldPrefillDigest  = "prefill.prompt"  // prompt digest of what P's worker presented
	FieldDecodeDigest   = "decode.prompt"   // prompt digest of what D's worker presented
	FieldPrefillLease   = "prefill.lease"   // P's lease, in its record, in D's and in P's verdict
	FieldDecodeLease    = "decode.lease"    // D's lease, in its record and in D's words
	FieldInstance       = "source.instance" // P's broker instance
	FieldEpoch          = "source.epoch"    // of P's lease
	FieldTenant         = "tenant"          // whose leases they are
	FieldWorker         = "worker"          // which worker held a lease
	FieldBroker         = "broker"          // which broker recorded a half
	FieldLayout         = "layout"          // layout hash
	FieldRevision       = "revision"        // weights
	FieldMover          = "mover"           // how pages moved
	FieldRole           = "role"            // a half that the admission has not
	FieldVerdict        = "verdict"         // an answered request without the verdicts that it needs
	FieldGap            = "records.gap"     // numbers of a broker's records that nobody saw
	FieldOrder          = "records.order"   // a number that came again, or an id that is none
	FieldRepeat         = "records.repeat"  // a second record of one half
	FieldOverflow       = "overflow"        // an open admission gave way to a newer one
)

// Finding is one difference. It has numbers and hashes, no text of a tenant.
type Finding struct {
	Field     string
	Admission string // hex; empty: it is about a broker's stream
	Broker    string
	Got, Want string
}
