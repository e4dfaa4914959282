package client

import (
	"context"
	"maps"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/gpu/pool"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/fault"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/pagesum"
	"leasehold.dev/protos/proof"
)

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

// Lease is the right to touch pages.
type Lease struct {
	ID    []byte
	Epoch uint64
	Pages []uint32   // a local DESTINATION's do not hold the moved pages yet: see Owned
	Tags  []pool.Tag // of a DESTINATION: 0 until AwaitOwned
	From  uint32

	c       *Client
	revoked chan struct{}
	err     error // after revoked; guarded by c.mu until then
}

// Reserve asks for pages. A DESTINATION returns when the peer has attached the Pull. When ctx ends first, whatever was
// reserved is given back in the background.
func (c *Client) Reserve(ctx context.Context, r Reservation) (*Lease, error) {
	req := &brokerv1.ReserveRequest{RequestId: proof.NewID(), Attach: c.token, Admission: r.Admission, Role: r.Role,
		TokenIds: r.TokenIDs, FromToken: r.From, Pages: r.Pages}
	n, err := c.begin()
	if err != nil {
		return nil, err
	}
	resp, err := c.rpc.Reserve(ctx, req)
	if err == nil {
		l := c.end(n, resp)
		if r.Role != brokerv1.Role_ROLE_DESTINATION { // it can be sealed once it is owned
			c.probe(ctx, l)
		}
		return l, nil
	}
	c.end(n, nil)
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable:
		c.undo(req)
	}
	return nil, errs.FromStatus(err)
}

// begin numbers a Reserve.
func (c *Client) begin() (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead != nil {
		return 0, c.dead
	}
	c.reserves++
	c.inflight[c.reserves] = struct{}{}
	return c.reserves, nil
}

// end takes the answer of Reserve n, nil when it failed.
func (c *Client) end(n uint64, resp *brokerv1.ReserveResponse) *Lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	var l *Lease
	if resp != nil {
		l = &Lease{ID: resp.Lease, Epoch: resp.Epoch, From: resp.FromToken, c: c, revoked: make(chan struct{})}
		l.Pages, l.Tags = split(resp.Pages)
		c.leases[string(l.ID)] = l
		if r, ok := c.early[string(l.ID)]; ok {
			l.revoke(r.why)
			delete(c.early, string(l.ID))
		}
		if c.dead != nil {
			l.revoke(c.dead)
		}
	}
	delete(c.inflight, n)
	c.dropEarly()
	return l
}

// dropEarly forgets the revokes that no Reserve in flight can be about: all that were when they came have returned.
// Callers hold mu.
func (c *Client) dropEarly() {
	if len(c.early) == 0 {
		return
	}
	oldest := c.reserves + 1
	for n := range c.inflight {
		oldest = min(oldest, n)
	}
	maps.DeleteFunc(c.early, func(_ string, r revoked) bool { return r.last < oldest })
}

// undo asks what became of a Reserve whose answer was lost, and retires what it gave: nobody here has seen those pages.
func (c *Client) undo(req *brokerv1.ReserveRequest) {
	c.persist(func(ctx context.Context) error {
		resp, err := c.rpc.Reserve(ctx, &brokerv1.ReserveRequest{RequestId: req.RequestId, Attach: c.token})
		if err != nil {
			return err
		}
		_, err = c.rpc.Retire(ctx, &brokerv1.RetireRequest{Attach: c.token, Lease: resp.Lease, Epoch: resp.Epoch, Reason: "the worker gave up"})
		return err
	})
}

// Refuse tells the waiting decode side why this worker will not serve an admission.
func (c *Client) Refuse(ctx context.Context, a *meshv1.SignedAdmission, why error) error {
	_, err := c.rpc.Refuse(ctx, &brokerv1.RefuseRequest{Attach: c.token, Admission: a, Code: uint32(errs.KindOf(why).Code()), Message: strings.ToValidUTF8(why.Error(), "\uFFFD")})
	return errs.FromStatus(err)
}

// Hash is how the lease is named outside the pair that holds it.
func (l *Lease) Hash() []byte { return proof.LeaseHash(l.ID) }

// Seal hands complete pages to the broker, in page order, each once.
func (l *Lease) Seal(ctx context.Context, pages []Seal) error {
	_, err := l.c.rpc.Seal(ctx, &brokerv1.SealRequest{Attach: l.c.token, Lease: l.ID, Epoch: l.spoken(), Pages: seals(pages)})
	return errs.FromStatus(err)
}

// Finish ends a SOURCE lease with its last pages. rows is the count over the lease's whole life.
func (l *Lease) Finish(ctx context.Context, pages []Seal, rows uint32) (Finish, error) {
	r, err := l.c.rpc.Finish(ctx, &brokerv1.FinishRequest{Attach: l.c.token, Lease: l.ID, Epoch: l.spoken(), Pages: seals(pages), Rows: rows})
	if err != nil {
		return Finish{}, errs.FromStatus(err)
	}
	return Finish{Root: r.Root, Pages: r.Pages, Rows: r.Rows}, nil
}

// AwaitSettled waits for the second look at the pages of a DESTINATION lease that is owned: no token may leave before it.
func (l *Lease) AwaitSettled(ctx context.Context) error {
	_, err := l.c.rpc.AwaitSettled(ctx, &brokerv1.AwaitSettledRequest{Attach: l.c.token, Lease: l.ID, Epoch: l.spoken()})
	return errs.FromStatus(err)
}

// AwaitOwned waits until the pages of a DESTINATION lease have arrived and were verified.
func (l *Lease) AwaitOwned(ctx context.Context) (*Owned, error) {
	r, err := l.c.rpc.AwaitOwned(ctx, &brokerv1.AwaitOwnedRequest{Attach: l.c.token, Lease: l.ID, Epoch: l.spoken()})
	if err != nil {
		return nil, errs.FromStatus(err)
	}
	l.c.probe(ctx, l)
	return newOwned(r)
}

// Explain is why a task of this lease ended with err and these fault records: err, or why the broker had taken the lease back.
// A kernel may meet the tags of a lease that is gone before the worker hears that it is.
func (l *Lease) Explain(ctx context.Context, err error, faults []engine.Fault) error {
	if len(faults) == 0 {
		return err
	}
	if end := l.ask(ctx, l.Epoch); end != nil {
		return end
	}
	return err
}

// ask says whether the broker takes the lease as one of epoch, in a Seal of no pages, which changes nothing.
func (l *Lease) ask(ctx context.Context, epoch uint64) error {
	_, err := l.c.rpc.Seal(ctx, &brokerv1.SealRequest{Attach: l.c.token, Lease: l.ID, Epoch: epoch})
	return errs.FromStatus(err)
}

// Fail is Retire of a lease whose request ended with why: its kind decides whether the other half of the request may be
// tried again.
func (l *Lease) Fail(ctx context.Context, why error, faults []engine.Fault) error {
	return l.retire(ctx, &brokerv1.RetireRequest{Code: uint32(errs.KindOf(why).Code()), Reason: why.Error()}, faults)
}

// Retire ends the lease: no kernel will touch its pages again. Repeats are no error. It is said even when ctx has ended.
// An error of kind Unavailable, Exhausted or Internal says that the broker has not heard it yet: it is said again in the
// background until the broker has, or the handle dies, since the pages stay in quarantine until then.
func (l *Lease) Retire(ctx context.Context, ok bool, reason string, faults []engine.Fault) error {
	return l.retire(ctx, &brokerv1.RetireRequest{Ok: ok, Reason: reason}, faults)
}

func (l *Lease) retire(ctx context.Context, req *brokerv1.RetireRequest, faults []engine.Fault) error {
	req.Attach, req.Lease, req.Epoch = l.c.token, l.ID, l.Epoch
	req.Reason = strings.ToValidUTF8(req.Reason, "\uFFFD")
	for _, f := range faults {
		req.Faults = append(req.Faults, &brokerv1.Fault{Page: f.Page, Want: f.Want, Got: f.Got, Write: f.Kind == engine.FaultWrite,
			Length: f.Kind == engine.FaultLength || f.Kind == engine.FaultPages})
	}
	say := func(ctx context.Context) error {
		_, err := l.c.rpc.Retire(ctx, req)
		if !unheard(err) {
			l.c.drop(l)
		}
		return err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	err := say(ctx)
	if unheard(err) {
		l.c.persist(say)
	}
	return errs.FromStatus(err)
}

// spoken is the epoch that the broker is told.
func (l *Lease) spoken() uint64 {
	if fault.At(fault.ClientEpoch) == fault.StaleEpoch {
		return l.Epoch - 1
	}
	return l.Epoch
}

func (c *Client) drop(l *Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.leases, string(l.ID))
}

// Revoked is closed when the broker took the lease back, or the handle died.
func (l *Lease) Revoked() <-chan struct{} { return l.revoked }

// RevokeErr says why; nil before Revoked is closed.
func (l *Lease) RevokeErr() error {
	select {
	case <-l.revoked:
		return l.err
	default:
		return nil
	}
}

// revoke is for callers that hold c.mu.
func (l *Lease) revoke(why error) {
	if l.err == nil {
		l.err = why
		close(l.revoked)
	}
}

func revokeError(r *brokerv1.Revoked) error {
	return errs.New(errs.KindOfCode(codes.Code(r.GetCode())), "lease revoked: %s", r.GetReason())
}

func seals(pages []Seal) []*brokerv1.PageSeal {
	out := make([]*brokerv1.PageSeal, len(pages))
	for i, s := range pages {
		out[i] = &brokerv1.PageSeal{Index: s.Index, Rows: s.Rows, Digest: s.Digest[:]}
	}
	return out
}

func split(grants []*brokerv1.PageGrant) (pages []uint32, tags []pool.Tag) {
	for _, g := range grants {
		pages = append(pages, g.GetPage())
		tags = append(tags, pool.Tag(g.GetTag()))
	}
	return pages, tags
}
