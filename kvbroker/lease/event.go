package lease

import (
	"crypto/sha256"
	"encoding/hex"

	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/pagesum"
)

// ID of a lease: 16 random bytes minted by the caller, never used twice.
type ID [16]byte

// String is the start of the id's SHA-256, which is how operators see a lease: the id is its holder's secret.
func (id ID) String() string { return hashed(id) }

// Attach is a worker's attach handle: 16 random bytes, never used twice.
type Attach [16]byte

// String is the start of the handle's SHA-256: the handle is its worker's secret.
func (a Attach) String() string { return hashed(a) }

func hashed(b [16]byte) string {
	h := sha256.Sum256(b[:])
	return hex.EncodeToString(h[:6])
}

// Admission is the id of the admission that a lease serves.
type Admission [16]byte

// String is the id in hex.
func (a Admission) String() string { return hex.EncodeToString(a[:]) }

// Ref is how a worker names its lease. A ref with another attach handle than the lease's is NotFound, as if the lease
// were not there; with another epoch it is Stale.
type Ref struct {
	Lease  ID
	Attach Attach
	Epoch  uint64
}

// PageSeal says that one page is complete. Rows and digest are the append kernel's.
type PageSeal struct {
	Index  uint32 // place in the lease
	Rows   uint32 // 1..64
	Digest pagesum.Digest
}

// Event is something that happened. The set is closed.
//
// Asks ([Reserve], [Seal], [Finish], [PullStarted], [Verify], [Verified], [Handover]) fail when they come too late, with the
// kind and reason of the lease's end. Reports (all others) that come too late change nothing and are [Ignored]. A lease
// that the table has never heard of is NotFound.
type Event interface{ event() }

type (
	// Attached makes a handle known. Leases of it carry its epoch.
	Attached struct {
		Attach Attach
		Worker string
		PID    uint32
		Epoch  uint64
	}

	// WorkerGone says that the process behind the handle has ended, seen on its pidfd: a proof. The handle is dead.
	WorkerGone struct{ Attach Attach }

	// Detached forgets a handle that is dead and has no lease, while its process lives on. Invalid: it has leases.
	Detached struct{ Attach Attach }

	// Reserve takes pages, all or none. Effects: [Granted] with the pages in order. Solo and source pages are tagged
	// and Writing; destination pages are Nobody's and Reserved.
	//
	//	Stale        the attach handle is not known
	//	Invalid      the id is taken, or the admission has a lease of this role
	//	Limit        more pages than the pool has, or than the tenant may ever hold
	//	Exhausted    not so many free now: pool, quota, the tenant's fair share, or too much in quarantine
	//	Unavailable  the broker drains
	Reserve struct {
		Lease     ID
		Attach    Attach
		Role      Role
		Tenant    string
		Admission Admission
		// Pages of the whole lease.
		Pages uint32
		// Moved is how many leading pages a transfer fills: of a destination 0 < Moved <= Pages, else 0.
		Moved uint32
		// Rows of KV that this lease is for: of a source those that it computes, of a destination those that arrive.
		Rows uint32
		// FromSource: the moved pages come by a [Handover] of the source's own, so only Pages - Moved are taken.
		FromSource bool
	}

	// Seal sets the sealed bit of complete pages, in page order, each once: a page that was sealed with the same
	// numbers is skipped, so a retry is harmless. Source: full pages; the last, if partial, is for Finish. Solo and
	// owned destination: full pages, from the first that was not moved whole.
	//
	//	Invalid  out of order, or rows that the place cannot have
	//	Corrupt  a second seal of a page differs, or the digest is zero
	Seal struct {
		Ref
		Seals []PageSeal
	}

	// Finish ends the writing of a source: its worker will not touch any page of it again, which is a proof like
	// [Retired]. Rows are those appended over the whole life of the lease. A repeat with the same numbers is Ignored.
	//
	//	Invalid  rows are not those that the lease is for, or pages are missing
	//	Corrupt  as for Seal
	Finish struct {
		Ref
		Seals []PageSeal
		Rows  uint32
	}

	// PullStarted counts a mover that may touch the lease's pages: of a destination it writes, of a source it reads.
	// Step it before the mover touches the first byte.
	PullStarted struct{ Lease ID }

	// PullEnded is that mover's proof: send buffers returned, receive callback done. OK says that the peer has, and
	// has acknowledged, all it wanted. The last OK end of a finished source releases it; any other end of a source is
	// its failure, and so is an end of a destination that is not OK.
	PullEnded struct {
		Lease ID
		OK    bool
	}

	// Arrived says that all bytes of one moved page of a destination have landed. Corrupt: at a place that awaits
	// none, or with no mover counted.
	Arrived struct {
		Lease ID
		Place uint32
	}

	// Verify says that all pages have arrived and that their check begins. No mover may be left: what is checked must
	// not change under the check.
	Verify struct{ Lease ID }

	// Verified says that the check passed: all pages of the lease are tagged and Owned, moved full pages sealed. Effects:
	// [Granted]. Without that effect nothing is owned.
	Verified struct{ Lease ID }

	// TransferFailed ends a destination that is not owned yet.
	TransferFailed struct {
		Lease  ID
		Kind   errs.Kind
		Reason string
	}

	// Handover gives the pages of a finished source to the destination of the same admission, which waits for it
	// ([Reserve].FromSource). Full pages keep their tags; the partial tail page is Nobody's until [Verified] tags it
	// anew. The destination's own pages follow. The source has ended then; all moved pages are Staged.
	Handover struct{ From, To ID }

	// Retired is the worker's proof that no kernel of it will touch the lease's pages again. OK: the request went
	// well; else Kind and Reason are of the failure, for the worker's peer. A source that retires before Finish, or a
	// destination before it is owned, has failed whatever OK says.
	Retired struct {
		Ref
		OK     bool
		Kind   errs.Kind
		Reason string
	}

	// Expire is a timer. It moves a lease to Quarantine and does nothing else.
	Expire struct{ Lease ID }

	// Revoke takes a lease back: its deadline, its peer, or an operator says so.
	Revoke struct {
		Lease  ID
		Kind   errs.Kind
		Reason string
	}

	// Zeroed says that pages of [Zero] effects were cleared. They are free.
	Zeroed struct{ Pages []uint32 }

	// Drain stops granting for good.
	Drain struct{ Reason string }
)

func (Attached) event()       {}
func (WorkerGone) event()     {}
func (Detached) event()       {}
func (Reserve) event()        {}
func (Seal) event()           {}
func (Finish) event()         {}
func (PullStarted) event()    {}
func (PullEnded) event()      {}
func (Arrived) event()        {}
func (Verify) event()         {}
func (Verified) event()       {}
func (TransferFailed) event() {}
func (Handover) event()       {}
func (Retired) event()        {}
func (Expire) event()         {}
func (Revoke) event()         {}
func (Zeroed) event()         {}
func (Drain) event()          {}
