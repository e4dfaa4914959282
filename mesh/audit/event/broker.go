package event

// Kinds of a broker's records. A lease's are in the order of its life.
const (
	KindBrokerStarted    = "broker.started"
	KindLeaseGranted     = "lease.granted"
	KindLeaseFinished    = "lease.finished"
	KindLeaseOwned       = "lease.owned"
	KindLeaseHandedOver  = "lease.handed-over"
	KindLeaseReleased    = "lease.released"
	KindLeaseQuarantined = "lease.quarantined"
	KindLeaseProven      = "lease.proven"
	KindPagesZeroed      = "pages.zeroed"
	KindLateWrite        = "incident.late_write"
	KindTransferFailed   = "incident.transfer"
	KindSourceChanged    = "incident.source"
	KindFault            = "incident.fault"
)

type (
	// BrokerStarted begins an instance: its pool is new, and what was granted before is void.
	BrokerStarted struct {
		Broker   string `json:"broker"`
		Instance string `json:"instance"` // hex
		Pages    uint32 `json:"pages"`
	}

	// LeaseGranted says who may have which pages. Pages of a destination have no generation yet: they are Nobody's until
	// it is owned. Those that a handover will bring are not in it.
	LeaseGranted struct {
		Lease     string `json:"lease"`
		Admission string `json:"admission"`
		Tenant    string `json:"tenant"`
		Worker    string `json:"worker"`
		Epoch     uint64 `json:"epoch"`
		Role      string `json:"role"`
		Moved     uint32 `json:"moved"`
		Pages     Pages  `json:"pages"`
	}

	// LeaseOwned says that a destination's pages were verified and are tagged now, all of them.
	LeaseOwned struct {
		Lease     string `json:"lease"`
		Admission string `json:"admission"`
		Tenant    string `json:"tenant"`
		Rows      uint32 `json:"rows"`
		Pages     Pages  `json:"pages"`
	}

	// Lease is any other change of a lease; As is its kind.
	Lease struct {
		As     string `json:"-"`
		Lease  string `json:"lease"`
		Tenant string `json:"tenant"`
		Role   string `json:"role"`
		Pages  uint32 `json:"pages"`
		Reason string `json:"reason,omitempty"`
	}

	// PagesZeroed says that pages were cleared, which is before they can be granted again. Lease is empty when they were
	// withheld after a late write until every suspect was gone.
	PagesZeroed struct {
		Lease string `json:"lease,omitempty"`
		Pages Pages  `json:"pages"`
	}

	// LateWrite says that a page changed after its owner had promised not to write. Withheld: nobody gets it while a
	// suspect lives.
	LateWrite struct {
		Page     uint32 `json:"page"`
		Lease    string `json:"lease,omitempty"`
		What     string `json:"what"`
		Suspects int    `json:"suspects"`
	}

	// TransferFailed says that what arrived was not what was expected.
	TransferFailed struct {
		Lease  string `json:"lease"`
		Error  string `json:"error"`
		Reason string `json:"reason"`
	}

	// SourceChanged says that a sealed page changed at its source.
	SourceChanged struct {
		Lease string `json:"lease"`
		Place uint32 `json:"place"`
	}

	// Fault says that a worker's kernels met a wrong tag in a lease that was alive; the numbers are of the first record.
	Fault struct {
		Lease  string `json:"lease"`
		Count  int    `json:"count"`
		Page   uint32 `json:"page"`
		Want   uint64 `json:"want"`
		Got    uint64 `json:"got"`
		Write  bool   `json:"write"`
		Length bool   `json:"length"`
	}
)

// Kind implements audit.Event, here and below.
func (BrokerStarted) Kind() string { return KindBrokerStarted }

// Kind of the record.
func (LeaseGranted) Kind() string { return KindLeaseGranted }

// Kind of the record.
func (LeaseOwned) Kind() string { return KindLeaseOwned }

// Kind of the record.
func (l Lease) Kind() string { return l.As }

// Kind of the record.
func (PagesZeroed) Kind() string { return KindPagesZeroed }

// Kind of the record.
func (LateWrite) Kind() string { return KindLateWrite }

// Kind of the record.
func (TransferFailed) Kind() string { return KindTransferFailed }

// Kind of the record.
func (SourceChanged) Kind() string { return KindSourceChanged }

// Kind of the record.
func (Fault) Kind() string { return KindFault }
