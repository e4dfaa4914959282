package lease

import (
	"fmt"

	"leasehold.dev/gpu/pool"
	"leasehold.dev/protos/errs"
)

// PageTag is one page and its tag.
type PageTag struct {
	Page uint32 // in the pool
	Tag  pool.Tag
}

// Effect is something that the caller must do, in order, before the next Step. Slices in effects are the caller's.
type Effect interface{ effect() }

type (
	// WriteTags stores tags. It is the first effect of every step that has one.
	WriteTags struct{ Tags []PageTag }

	// Granted answers [Reserve] and [Verified]: the lease's pages in order, with the tags to look for. Nobody's have tag 0.
	Granted struct {
		Lease ID
		Epoch uint64
		Pages []PageTag
	}

	// Revoked tells a worker that its lease is taken back. It must stop the sequence and answer with [Retired].
	Revoked struct {
		Attach Attach
		Lease  ID
		Kind   errs.Kind
		Reason string
	}

	// EndPull says that the transfer which this lease is one end of has failed: stop its movers, tell its peer. What a
	// stopped mover has done so far counts for nothing; the lease waits for its [PullEnded].
	EndPull struct {
		Lease  ID
		Kind   errs.Kind
		Reason string
	}

	// Zero asks to clear pages that are proven untouched by anyone, and to answer with [Zeroed], in parts if need be.
	// Pages are in the lease's order. Seals are those of the lease: a sealed page with another digest now was written late.
	// It is the last that is heard of every lease but one that was handed over, also of one without pages: what is kept
	// beside the table for the check is needed until then and no longer.
	Zero struct {
		Lease ID
		Pages []uint32
		Seals []PageSeal
	}

	// Record is for metrics and the audit log.
	Record struct {
		Kind   RecordKind
		Lease  ID
		Tenant string
		Role   Role
		Pages  uint32
		Reason string // of a bad end
	}

	// Draining says that granting has stopped, with the reason, or goes on again: an empty reason.
	Draining struct{ Reason string }

	// Ignored says why a report changed nothing.
	Ignored struct {
		Lease  ID
		Reason string
	}
)

func (WriteTags) effect() {}
func (Granted) effect()   {}
func (Revoked) effect()   {}
func (EndPull) effect()   {}
func (Zero) effect()      {}
func (Record) effect()    {}
func (Draining) effect()  {}
func (Ignored) effect()   {}

// RecordKind says what became of a lease.
type RecordKind uint8

// The kinds, in the order of a lease's life.
const (
	WasReserved RecordKind = iota
	WasFinished
	WasOwned
	WasHandedOver
	WasReleased
	WasQuarantined
	WasProven // every party that could touch the pages has proven that it will not
)

var recordNames = [...]string{"reserved", "finished", "owned", "handed-over", "released", "quarantined", "proven"}

// String is the kind's name in metrics and logs.
func (k RecordKind) String() string {
	if int(k) < len(recordNames) {
		return recordNames[k]
	}
	return fmt.Sprintf("record(%d)", uint8(k))
}
