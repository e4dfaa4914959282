package client

import (
	"context"
	"time"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/gpu/pool"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/pagesum"
)

// Config says which broker to attach to, and as whom.
type Config struct {
	Dir    string // the broker's runtime directory: attach.sock and worker.sock
	Worker string // this worker's instance id, as the mesh knows it
}

// Info is what the broker said at the attach.
type Info struct {
	Broker            string // the broker's instance name
	Instance          []byte
	Epoch             uint64
	LayoutHash        []byte
	ModelRevision     []byte
	TokenizerRevision []byte
	NumericsClass     string
	PoolPages         uint32
	PageBytes         uint64
}

// PoolState is the pool as the broker last told it.
type PoolState struct {
	Pages, Free uint32
	Draining    bool
}

// Reservation asks for the pages of one side of one admission.
type Reservation struct {
	Admission *meshv1.SignedAdmission
	Role      brokerv1.Role
	TokenIDs  []int32 // all n
	From      uint32  // DESTINATION: first row that must be moved
	Pages     uint32  // what the worker derived; the broker derives its own and compares
}

// Seal says that a page is complete, with what the append kernel counted.
type Seal struct {
	Index  uint32 // place in the lease
	Rows   uint32 // 1..64
	Digest pagesum.Digest
}

// Finish is the broker's answer to a finished source lease.
type Finish struct {
	Root        []byte
	Pages, Rows uint32
}

// Client is one attach handle.
type Client struct{}

// Attach connects to the broker in c.Dir. ctx bounds the attach only.
func Attach(ctx context.Context, c Config) (*Client, error) {
	return nil, errs.New(errs.Unavailable, "attach: not built yet")
}

// Info returns what the broker said at the attach.
func (c *Client) Info() Info { return Info{} }

// Mapping is the pool; valid until Close.
func (c *Client) Mapping() *pool.Mapping { return nil }

// Done is closed when the handle has died.
func (c *Client) Done() <-chan struct{} { return nil }

// Pool is the latest state of the pool.
func (c *Client) Pool() PoolState { return PoolState{} }

// Close gives the handle back, unmaps the pool and waits for the client's goroutines. No kernel may be running.
func (c *Client) Close() error { return nil }

// Reserve asks for pages. A DESTINATION returns when the peer has attached the Pull.
func (c *Client) Reserve(ctx context.Context, r Reservation) (*Lease, error) { return nil, nil }

// Refuse tells the waiting decode side why this worker will not serve an admission.
func (c *Client) Refuse(ctx context.Context, a *meshv1.SignedAdmission, why error) error { return nil }

// Lease is the right to touch pages.
type Lease struct {
	ID    []byte
	Epoch uint64
	Pages []uint32
	Tags  []pool.Tag
	From  uint32
}

// Hash is how the lease is named outside the pair that holds it.
func (l *Lease) Hash() []byte { return nil }

// Seal hands complete pages to the broker, in page order, each once.
func (l *Lease) Seal(ctx context.Context, pages []Seal) error { return nil }

// Finish ends a SOURCE lease with its last pages. rows is the count over the lease's whole life.
func (l *Lease) Finish(ctx context.Context, pages []Seal, rows uint32) (Finish, error) {
	return Finish{}, nil
}

// AwaitOwned waits until the pages of a DESTINATION lease have arrived and were verified.
func (l *Lease) AwaitOwned(ctx context.Context) (*Owned, error) { return nil, nil }

// Retire ends the lease: no kernel will touch its pages again. Repeats are no error.
func (l *Lease) Retire(ctx context.Context, ok bool, reason string, faults []engine.Fault) error {
	return nil
}

// Revoked is closed when the broker took the lease back, or the handle died.
func (l *Lease) Revoked() <-chan struct{} { return nil }

// RevokeErr says why; nil before Revoked is closed.
func (l *Lease) RevokeErr() error { return nil }

// Owned is the proof that a destination's pages are verified.
type Owned struct{}

// Pages are all pages of the lease, in order.
func (o *Owned) Pages() []uint32 { return nil }

// Tags belong to Pages.
func (o *Owned) Tags() []pool.Tag { return nil }

// Rows are the rows found in the data that arrived; the sequence's verified length is From() + Rows().
func (o *Owned) Rows() uint32 { return 0 }

// From is the first row that was moved.
func (o *Owned) From() uint32 { return 0 }

// ExpectedPages is the receiver's own expectation of moved pages, from the token ids alone.
func (o *Owned) ExpectedPages() uint32 { return 0 }

// StartDigest is the digest of the last verified page when it is partial, else nil: what an engine appends to.
func (o *Owned) StartDigest() *pagesum.Digest { return nil }

// Completion is as verified, without its MAC.
func (o *Owned) Completion() *brokerv1.Completion { return nil }

// BytesMoved are the bytes that arrived.
func (o *Owned) BytesMoved() uint64 { return 0 }

// TransferTime is the time from the first part to the last.
func (o *Owned) TransferTime() time.Duration { return 0 }

// VerifyTime is what digesting and comparing took.
func (o *Owned) VerifyTime() time.Duration { return 0 }
