package transfer

import (
	"bytes"
	"crypto/hmac"
	"encoding/hex"

	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/fault"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/pagesum"
	"leasehold.dev/protos/proof"
)

// Broker is what is known of one side of a transfer: a broker of itself, or of its peer from the handshake.
type Broker struct {
	Instance      []byte // 16 bytes
	Epoch         uint64
	ModelRevision []byte // 32 bytes
	LayoutHash    []byte // 32 bytes
	PageBytes     uint64
}

// Expectation is what a receiver will accept. It is made from the receiver's own data only.
type Expectation struct {
	Admission     []byte
	Tenant        string
	ModelRevision []byte
	LayoutHash    []byte
	PromptDigest  []byte // computed from the token ids
	Destination   []byte // own instance
	From          uint32
	Rows          uint32 // n-1-from
	Pages         uint32
	PageBytes     uint64
}

// Expect derives what a transfer of rows [from, n-1) must bring. own is the receiving broker; a is an admission whose
// signature was checked; ids are all n token ids, as own's worker presented them.
//
//	Invalid  nothing to move, from is not the first row of a page, or the admission is for other weights
//	Corrupt  the ids are not the admission's
func Expect(a *meshv1.Admission, own Broker, ids []int32, from uint32) (*Expectation, error) {
	n, rows, pages, err := numbers(a.GetPromptTokens(), from)
	if err != nil {
		return nil, err
	}
	if uint64(len(ids)) != uint64(n) && !fault.Off(fault.Counts) {
		return nil, errs.New(errs.Corrupt, "expect: %d token ids presented, %d admitted", len(ids), n)
	}
	if !bytes.Equal(a.ModelRevision, own.ModelRevision) {
		return nil, errs.New(errs.Invalid, "expect: admission for weights %s, this broker has %s", short(a.ModelRevision),
			short(own.ModelRevision))
	}
	digest := proof.PromptDigest(a.Nonce, a.Tenant, own.ModelRevision, ids)
	if !hmac.Equal(digest, a.PromptDigest) && !fault.Off(fault.PromptDigest) {
		return nil, errs.New(errs.Corrupt, "expect: prompt digest differs from the admission's")
	}
	return &Expectation{
		Admission:     a.Id,
		Tenant:        a.Tenant,
		ModelRevision: own.ModelRevision,
		LayoutHash:    own.LayoutHash,
		PromptDigest:  digest,
		Destination:   own.Instance,
		From:          from,
		Rows:          rows,
		Pages:         pages,
		PageBytes:     own.PageBytes,
	}, nil
}

// numbers of a transfer of rows [from, n-1). Only whole pages are shared, so a transfer starts at a page's first row.
func numbers(n, from uint32) (_, rows, pages uint32, err error) {
	switch pages = proof.Pages(n, from); {
	case pages == 0:
		return 0, 0, 0, errs.New(errs.Invalid, "transfer: no row to move of %d tokens from %d", n, from)
	case from%pagesum.PageTokens != 0:
		return 0, 0, 0, errs.New(errs.Invalid, "transfer: from row %d, which is not the first of a page of %d", from, pagesum.PageTokens)
	}
	return n, n - 1 - from, pages, nil
}

// RowsOf is the number of rows in one moved page: 64 but in the last.
func (e *Expectation) RowsOf(place uint32) uint32 { return rowsOf(e.Rows, place) }

func rowsOf(rows, place uint32) uint32 {
	before := uint64(place) * pagesum.PageTokens
	if uint64(rows) <= before {
		return 0
	}
	return uint32(min(uint64(rows)-before, pagesum.PageTokens))
}

// short is how digests and instances are named in errors.
func short(b []byte) string {
	if len(b) == 0 {
		return "(none)"
	}
	return hex.EncodeToString(b[:min(len(b), 6)])
}
