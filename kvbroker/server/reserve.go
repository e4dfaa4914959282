package server

import (
	"bytes"
	"context"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"

	"leasehold.dev/kvbroker/lease"
	"leasehold.dev/kvbroker/mover"
	"leasehold.dev/kvbroker/transfer"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/fault"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/proof"
)

// reserve is one Reserve, checked and carried out. On error nothing stays reserved.
func (b *Broker) reserve(ctx context.Context, c *call, req *brokerv1.ReserveRequest) (*brokerv1.ReserveResponse, error) {
	fault.At(fault.BrokerReserve)
	if err := b.cfg.Audit.Healthy(ctx); err != nil { // what cannot be put on record is not granted
		return nil, err
	}
	a, err := proof.Open(b.cfg.AdmissionKey, req.Admission, req.TokenIds)
	if err != nil {
		return nil, err
	}
	if err := b.checkAdmission(a); err != nil {
		return nil, err
	}
	if err := b.checkSpent(a, req.Role); err != nil {
		return nil, err
	}
	switch req.Role {
	case brokerv1.Role_ROLE_SOLO:
		return b.reserveSolo(ctx, c, a, req)
	case brokerv1.Role_ROLE_DESTINATION:
		return b.reserveDestination(ctx, c, a, req)
	case brokerv1.Role_ROLE_SOURCE:
		return b.reserveSource(ctx, c, a, req)
	}
	return nil, errs.New(errs.Invalid, "reserve: role %v", req.Role)
}

func (b *Broker) checkAdmission(a *meshv1.Admission) error {
	if !bytes.Equal(a.ModelRevision, b.own.ModelRevision) {
		return errs.New(errs.Invalid, "admission: for model revision %x, this broker's is %x", a.ModelRevision, b.own.ModelRevision)
	}
	if late := time.Since(deadlineOf(a)); late >= 0 {
		return errs.New(errs.Stale, "admission: its deadline was %v ago", late.Round(time.Millisecond))
	}
	return nil
}

// checkSpent goes before a look for the Pull, which has ended when the admission was served. Who takes looks again.
func (b *Broker) checkSpent(a *meshv1.Admission, role brokerv1.Role) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for own, r := range roles {
		if r == role {
			return b.spent.check(use{lease.Admission(a.Id), own})
		}
	}
	return nil
}

func deadlineOf(a *meshv1.Admission) time.Time { return time.UnixMilli(a.DeadlineUnixMs) }

// checkDecode says whether the admission names this worker and broker for decoding.
func (b *Broker) checkDecode(a *meshv1.Admission, h *handle) error {
	if a.Decode != h.worker || a.DecodeBroker != b.cfg.Name {
		return errs.New(errs.Denied, "reserve: the admission names another decode worker or broker")
	}
	return nil
}

// lifePages is what a request may fill: its prompt and every new token but the last, whose KV nobody reads.
func lifePages(a *meshv1.Admission) uint64 {
	return (uint64(a.PromptTokens) + uint64(a.MaxNewTokens) - 1 + pageTokens - 1) / pageTokens
}

// checkPages compares the worker's count with the broker's own.
func (b *Broker) checkPages(own uint64, worker uint32) error {
	if fault.Off(fault.Counts) {
		return nil
	}
	if own > uint64(b.cfg.Pages) {
		return errs.New(errs.Limit, "reserve: %d pages are needed, the pool has %d", own, b.cfg.Pages)
	}
	if own != uint64(worker) {
		return errs.New(errs.Invalid, "reserve: the worker derived %d pages, the broker %d", worker, own)
	}
	return nil
}

func (b *Broker) reserveSolo(ctx context.Context, c *call, a *meshv1.Admission, req *brokerv1.ReserveRequest) (*brokerv1.ReserveResponse, error) {
	if err := b.checkDecode(a, c.h); err != nil {
		return nil, err
	}
	if a.Mover != meshv1.Mover_MOVER_NONE || req.FromToken != 0 {
		return nil, errs.New(errs.Invalid, "reserve: a solo lease from token %d with mover %v", req.FromToken, a.Mover)
	}
	if err := b.checkPages(lifePages(a), req.Pages); err != nil {
		return nil, err
	}
	h, pages, err := b.take(c, a, lease.Reserve{Role: lease.Solo, Pages: req.Pages})
	if err != nil {
		return nil, err
	}
	if err := b.undelivered(ctx, h); err != nil {
		return nil, err
	}
	b.mu.Lock()
	b.recordSolo(a, h, req.TokenIds)
	b.mu.Unlock()
	return b.answer(h, pages, 0), nil
}

func (b *Broker) reserveSource(ctx context.Context, c *call, a *meshv1.Admission, req *brokerv1.ReserveRequest) (*brokerv1.ReserveResponse, error) {
	if a.Prefill != c.h.worker || a.PrefillBroker != b.cfg.Name {
		return nil, errs.New(errs.Denied, "reserve: the admission names another prefill worker or broker")
	}
	p, err := b.pullOf(a)
	if err != nil {
		return nil, err
	}
	from, rows, want := p.core.Want()
	if err := b.checkPages(uint64(want), req.Pages); err != nil {
		return nil, err
	}
	if fault.Off(fault.Counts) { // then what the worker says is all that there is
		want, rows = req.Pages, uint32(len(req.TokenIds))-1
	}
	h, pages, err := b.take(c, a, lease.Reserve{Role: lease.Source, Pages: want, Rows: rows})
	if err != nil {
		return nil, err
	}
	if err = p.bind(h, pages, rows, proof.PromptDigest(a.Nonce, a.Tenant, b.own.ModelRevision, req.TokenIds)); err != nil {
		b.abandon(h, err)
		return nil, err
	}
	if err := b.undelivered(ctx, h); err != nil {
		return nil, err
	}
	return b.answer(h, pages, from), nil
}

func (b *Broker) reserveDestination(ctx context.Context, c *call, a *meshv1.Admission, req *brokerv1.ReserveRequest) (*brokerv1.ReserveResponse, error) {
	if err := b.checkDecode(a, c.h); err != nil {
		return nil, err
	}
	local := a.Mover == meshv1.Mover_MOVER_LOCAL
	switch {
	case !local && !b.moves(a.Mover):
		return nil, errs.New(errs.Invalid, "reserve: a destination with mover %v", a.Mover)
	case local && a.PrefillBroker != b.cfg.Name:
		return nil, errs.New(errs.Invalid, "reserve: mover local, but prefill is at another broker")
	case req.FromToken != 0:
		return nil, errs.New(errs.Invalid, "reserve: from token %d: this broker keeps no prefixes", req.FromToken)
	}
	if err := b.checkPages(lifePages(a), req.Pages); err != nil {
		return nil, err
	}
	expect, err := transfer.Expect(a, b.own, req.TokenIds, req.FromToken)
	if err != nil {
		return nil, err
	}
	h, pages, err := b.take(c, a, lease.Reserve{Role: lease.Destination, Pages: req.Pages, Moved: expect.Pages,
		Rows: expect.Rows, FromSource: local})
	if err != nil {
		return nil, err
	}
	if err := b.attachPull(ctx, h, a, req.Admission, expect, pages); err != nil {
		b.abandon(h, err)
		return nil, err
	}
	if err := b.undelivered(ctx, h); err != nil {
		return nil, err
	}
	return b.answer(h, pages, req.FromToken), nil
}

// attachPull opens the Pull of a destination, and leaves a goroutine to receive it. ctx bounds the opening only.
func (b *Broker) attachPull(ctx context.Context, h *held, a *meshv1.Admission, ticket *meshv1.SignedAdmission,
	expect *transfer.Expectation, pages []lease.PageTag) error {
	d := &destination{b: b, h: h, id: h.id, ticket: a, mover: a.Mover, expect: expect, peer: b.own,
		done: make(chan struct{}), settled: make(chan struct{}), found: make([]*transfer.Found, expect.Pages),
		begun: make(chan struct{})}
	d.begin = sync.OnceFunc(func() { close(d.begun) })
	for _, p := range pages {
		d.pages = append(d.pages, p.Page)
	}
	withDeadline, free := context.WithDeadline(b.ctx, deadlineOf(a))
	d.ctx, d.cancel = context.WithCancelCause(withDeadline)
	context.AfterFunc(d.ctx, free)
	stop := context.AfterFunc(ctx, func() { d.cancel(context.Cause(ctx)) })
	b.mu.Lock()
	h.dest = d
	b.mu.Unlock()
	p, err := d.open(a, ticket)
	if !stop() && err == nil {
		p.Close()
		err = errs.New(errs.Unavailable, "reserve: the worker gave up: %w", context.Cause(ctx))
	}
	if err == nil && d.local == nil {
		err = b.step(lease.PullStarted{Lease: h.id})
	}
	if err != nil {
		d.cancel(err)
		if d.local != nil {
			b.unpark(d.local, err)
		}
		b.mu.Lock()
		b.recordDestination(d, nil, err)
		b.mu.Unlock()
		d.err, d.unsettled = err, err
		close(d.done)
		close(d.settled)
		return err
	}
	b.wg.Go(func() { d.run(p) })
	return nil
}

// open mints the secret and attaches the Pull at the broker that will hold the source lease.
func (d *destination) open(a *meshv1.Admission, ticket *meshv1.SignedAdmission) (pull, error) {
	d.secret = proof.NewSecret()
	open := &brokerv1.PullOpen{Admission: ticket, Secret: d.secret, FromInstance: d.b.instance, FromToken: d.expect.From,
		Rows: d.expect.Rows, Pages: d.expect.Pages}
	if a.Mover == meshv1.Mover_MOVER_LOCAL {
		open.ToInstance = d.b.instance
		p, err := d.b.park(a, open, true)
		if err != nil {
			return nil, err
		}
		d.local = p
		return mover.OpenLocal(d.ctx, p), nil
	}
	var p pull
	err := d.b.peers.call(d.ctx, a.PrefillBroker, func(conn grpc.ClientConnInterface, peer *brokerv1.BrokerIdentity) (err error) {
		open.ToInstance = peer.Instance
		d.peer = transfer.Broker{Instance: peer.Instance, ModelRevision: peer.ModelRevision, LayoutHash: peer.LayoutHash, PageBytes: d.b.own.PageBytes}
		p, err = d.pullBy(a.Mover, conn, peer, open)
		return err
	})
	return p, err
}

// pullBy opens the Pull at peer.
func (d *destination) pullBy(m meshv1.Mover, conn grpc.ClientConnInterface, peer *brokerv1.BrokerIdentity, open *brokerv1.PullOpen) (pull, error) {
	if m == shm {
		return d.openShared(conn, peer, open)
	}
	if m == ucx {
		return d.openHauled(conn, open)
	}
	if d.b.cfg.RawLanes && peer.DataAddress != "" {
		return d.pullRaw(conn, peer, open)
	}
	s, err := mover.Open(d.ctx, conn, open, d.b.peers.peers.More(peer.Name, d.b.cfg.PullLanes-1)...)
	if err != nil {
		return nil, err // not s: a nil stream would be a pull that is not nil
	}
	return s, nil
}

// pullRaw opens the Pull at peer with raw lanes. When that fails, the Pull does: pages never come another way than was asked for.
func (d *destination) pullRaw(conn grpc.ClientConnInterface, peer *brokerv1.BrokerIdentity, open *brokerv1.PullOpen) (pull, error) {
	s, err := mover.OpenRaw(d.ctx, conn, open, d.b.cfg.PullLanes, func(ctx context.Context) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, mover.RawLaneOpening)
		defer cancel()
		return d.b.cfg.Wire.Dial(ctx, peer.Name, peer.DataAddress)
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// take reserves pages, all or none, and keeps the lease. Pages that are not zero are an incident, and no grant.
func (b *Broker) take(c *call, a *meshv1.Admission, ev lease.Reserve) (*held, []lease.PageTag, error) {
	ev.Lease, ev.Attach = lease.ID(proof.NewID()), c.h.token
	ev.Tenant, ev.Admission = a.Tenant, lease.Admission(a.Id)
	b.mu.Lock()
	g, h, err := b.takeLocked(c, a, ev)
	b.mu.Unlock()
	if err != nil {
		return nil, nil, err
	}
	if dirty := b.dirtyGrant(g.Pages); len(dirty) > 0 {
		b.mu.Lock()
		for _, p := range dirty {
			b.dirtied[p] = struct{}{}
		}
		b.mu.Unlock()
		err := errs.New(errs.Unavailable, "reserve: %d of %d pages were written after they were cleared", len(dirty), len(g.Pages))
		b.abandon(h, err)
		return nil, nil, err
	}
	return h, g.Pages, nil
}

func (b *Broker) takeLocked(c *call, a *meshv1.Admission, ev lease.Reserve) (lease.Granted, *held, error) {
	if c.h.hungUp {
		return lease.Granted{}, nil, errs.New(errs.Stale, "the attach handle is dead: attach again")
	}
	u := use{ev.Admission, ev.Role}
	if err := b.spent.check(u); err != nil {
		return lease.Granted{}, nil, err
	}
	effects, err := b.stepLocked(ev)
	if err != nil {
		return lease.Granted{}, nil, err
	}
	b.spent.add(u, deadlineOf(a), time.Now())
	g, err := grantedIn(effects)
	if err != nil {
		return g, nil, err
	}
	h := &held{id: ev.Lease, ref: lease.Ref{Lease: ev.Lease, Attach: ev.Attach, Epoch: g.Epoch}, tenant: ev.Tenant,
		use: u, since: time.Now(), call: c}
	b.held[h.id] = h
	h.expireAt(b, faultyDeadline(deadlineOf(a)))
	return g, h, nil
}

func grantedIn(effects []lease.Effect) (lease.Granted, error) {
	for _, e := range effects {
		if g, ok := e.(lease.Granted); ok {
			return g, nil
		}
	}
	return lease.Granted{}, errs.New(errs.Internal, "the table granted nothing")
}

// undelivered ends a lease whose worker has given up waiting for it.
func (b *Broker) undelivered(ctx context.Context, h *held) error {
	if ctx.Err() == nil {
		return nil
	}
	err := errs.New(errs.Unavailable, "reserve: the worker gave up: %w", context.Cause(ctx))
	b.abandon(h, err)
	return err
}

func (b *Broker) answer(h *held, pages []lease.PageTag, from uint32) *brokerv1.ReserveResponse {
	return &brokerv1.ReserveResponse{Lease: h.id[:], Instance: b.instance, Epoch: h.ref.Epoch, Pages: grants(pages), FromToken: from}
}

func grants(pages []lease.PageTag) []*brokerv1.PageGrant {
	out := make([]*brokerv1.PageGrant, len(pages))
	for i, p := range pages {
		out[i] = &brokerv1.PageGrant{Page: p.Page, Tag: uint64(p.Tag)}
	}
	return out
}
