package audit

// Event is what a record says. Its JSON is the record's fields, and kinds are a closed set: they become a metric's label.
type Event interface{ Kind() string }

// Kinds of the log's own records.
const (
	KindOpened  = "audit.opened"
	KindTorn    = "audit.torn"
	KindRemoved = "audit.removed"
	KindLost    = "audit.lost"
	KindClosed  = "audit.closed"
)

type (
	// opened begins each run of a process. Without a closed before it, that run was killed.
	opened struct {
		PID int    `json:"pid"`
		Key string `json:"key"`
	}

	// torn has what a run that was cut off had written of its last line.
	torn struct {
		File   string `json:"file"`
		Offset int64  `json:"offset"`
		Bytes  []byte `json:"bytes"`
	}

	// removed says what rotation takes away: the records up to Last, whose hash is Hash.
	removed struct {
		Files []string `json:"files"`
		Last  uint64   `json:"last"`
		Hash  Hash     `json:"hash"`
	}

	// lost says how many records there was no room for while the log could not be written.
	lost struct {
		Count  uint64 `json:"count"`
		Reason string `json:"reason"`
	}

	closed struct{}
)

func (opened) Kind() string  { return KindOpened }
func (torn) Kind() string    { return KindTorn }
func (removed) Kind() string { return KindRemoved }
func (lost) Kind() string    { return KindLost }
func (closed) Kind() string  { return KindClosed }
