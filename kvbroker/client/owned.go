package client

import (
	"time"

	"leasehold.dev/gpu/pool"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/fault"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	"leasehold.dev/protos/pagesum"
)

// Owned is the proof that a destination's pages are verified.
type Owned struct {
	r     *brokerv1.AwaitOwnedResponse
	pages []uint32
	tags  []pool.Tag
	start *pagesum.Digest
}

func newOwned(r *brokerv1.AwaitOwnedResponse) (*Owned, error) {
	o := &Owned{r: r}
	o.pages, o.tags = split(r.Pages)
	if n := len(r.GetCompletion().GetDigests()); (n == 0 || n != int(r.ExpectedPages) || n > len(o.pages)) && !fault.Off(fault.Counts) {
		return nil, errs.New(errs.Corrupt, "owned: %d digests, %d pages expected, %d granted", n, r.ExpectedPages, len(o.pages))
	} else if r.Rows%pagesum.PageTokens != 0 {
		if n == 0 || fault.Off(fault.Counts) { // the digest that there is need not be of the last page
			o.start = &pagesum.Digest{}
			return o, nil
		}
		last := r.Completion.Digests[n-1]
		if len(last) != len(pagesum.Digest{}) {
			return nil, errs.New(errs.Corrupt, "owned: a page digest of %d bytes", len(last))
		}
		d := pagesum.Digest(last)
		o.start = &d
	}
	return o, nil
}

// Pages are all pages of the lease, in order.
func (o *Owned) Pages() []uint32 { return o.pages }

// Tags belong to Pages.
func (o *Owned) Tags() []pool.Tag { return o.tags }

// Rows are the rows found in the data that arrived; the sequence's verified length is From() + Rows().
func (o *Owned) Rows() uint32 { return o.r.Rows }

// From is the first row that was moved.
func (o *Owned) From() uint32 { return o.r.Completion.FromToken }

// ExpectedPages is the receiver's own expectation of moved pages, from the token ids alone.
func (o *Owned) ExpectedPages() uint32 { return o.r.ExpectedPages }

// StartDigest is the digest of the last verified page when it is partial, else nil: what an engine appends to.
func (o *Owned) StartDigest() *pagesum.Digest { return o.start }

// Completion is as verified, without its MAC.
func (o *Owned) Completion() *brokerv1.Completion { return o.r.Completion }

// BytesMoved are the bytes that arrived.
func (o *Owned) BytesMoved() uint64 { return o.r.BytesMoved }

// TransferTime is the time from the first part to the last.
func (o *Owned) TransferTime() time.Duration { return time.Duration(o.r.TransferUs) * time.Microsecond }

// VerifyTime is what digesting and comparing took.
func (o *Owned) VerifyTime() time.Duration { return time.Duration(o.r.VerifyUs) * time.Microsecond }
