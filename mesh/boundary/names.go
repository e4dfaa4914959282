package boundary

import "slices"

// Names of the metrics. Prometheus shows the counter with _total at its end.
const (
	// LastObserved is a gauge by property, detector and pair: Unix time in seconds at which the detector last looked at the
	// property and could tell. Until its first look it is the time of Expect, so that silence from the start shows.
	LastObserved = "leasehold_property_last_observed_seconds"
	// Incidents is a counter by property and detector. It starts at 0 for every detector that is expected.
	Incidents = "leasehold_boundary_incidents"
	// Untracked is a gauge: how many combinations have no LastObserved because MaxSeries have one.
	Untracked = "leasehold_property_untracked"
)

// Labels of LastObserved and Incidents.
const (
	LabelProperty = "property"
	LabelDetector = "detector"
	LabelPair     = "pair"
)

// MaxSeries bounds the combinations of property, detector and pair that one process has a time for. Metrics of one name are
// cut at 2,000 series by their SDK, silently; ours must not be.
const MaxSeries = 1024

// Property is one of the five of docs/boundary.md.
type Property string

// The properties, the worst to lose first.
const (
	P1 Property = "P1" // provenance: an answer is a function of this caller's input and the weights
	P2 Property = "P2" // no read of a page that the reader's lease does not own now
	P3 Property = "P3" // no success borrowed by a failure
	P4 Property = "P4" // two views of one request agree, or it fails and somebody is told
	P5 Property = "P5" // no promise above a derived limit
)

// Properties is all of them, in order.
var Properties = []Property{P1, P2, P3, P4, P5}

// Detector is a part that looks at a property from outside of the guard that enforces it.
type Detector string

// The detectors. The set is closed: it is a metric's label.
const (
	Canary         Detector = "canary"          // front, middle and end of a prompt came back, through one pair
	NegativeCanary Detector = "negative_canary" // what must be refused was refused, by one pair
	StaleEpoch     Detector = "stale_epoch"     // a broker refused what its own worker said as of an old epoch
	Replay         Detector = "replay"          // a request run again elsewhere gave the same tokens
	ReceiptReport  Detector = "receipt_report"  // a tenant says that an answer is not about his prompt; never "observed"
	TooFast        Detector = "too_fast"        // prefill was not faster than its own warm-up says it can be
	TagFault       Detector = "tag_fault"       // fault records of kernels, as the broker got them
	LateWrite      Detector = "late_write"      // released or granted pages hold what they should
	SourceChanged  Detector = "source_changed"  // sealed pages are at their source what they were when sealed
	Verdict        Detector = "verdict"         // both halves' verdicts agree with the admission
	Refusal        Detector = "refusal"         // workers do not refuse what the router admitted
	Reconciler     Detector = "reconciler"      // both brokers' records of one admission agree with the router's
	Limits         Detector = "limits"          // no promise is above a derived limit
	AuditLog       Detector = "audit_log"       // the head of the audit log was signed
	Unknown        Detector = "unknown"         // a combination that is not in Watches
)

// Watches says which properties a detector speaks for.
var Watches = map[Detector][]Property{
	Canary:         {P1, P2},
	NegativeCanary: {P3, P5},
	StaleEpoch:     {P2},
	Replay:         {P1},
	ReceiptReport:  {P1},
	TooFast:        {P1},
	TagFault:       {P2},
	LateWrite:      {P2},
	SourceChanged:  {P2},
	Verdict:        {P4},
	Refusal:        {P4, P5},
	Reconciler:     {P3, P4},
	Limits:         {P5},
	AuditLog:       {P1},
}

func watches(p Property, d Detector) bool { return slices.Contains(Watches[d], p) }

// Pair names a prefill and a decode worker; decode alone, an unsplit route, has an empty prefill.
func Pair(prefill, decode string) string { return prefill + "/" + decode }
