package server

import (
	"context"
	"sync"

	"leasehold.dev/kvbroker/attach"
	"leasehold.dev/kvbroker/lease"
	"leasehold.dev/kvbroker/mover"
	"leasehold.dev/protos/errs"
	moverv1 "leasehold.dev/protos/gen/leasehold/mover/v1"
	"leasehold.dev/protos/proof"
)

// carrier is a mover process of this broker. Its attach says when it is gone; its stream, once it has said Hello, is how it is
// told what to do. What it was told is not undone when the stream ends: only its exit, or a Drained, frees pages.
type carrier struct {
	name     string
	token    string
	instance string
	conn     *attach.Conn

	mu      sync.Mutex
	address []byte // of its mover, after Hello
	driven  bool   // there is a stream, or was
	lost    error  // why nothing is told any more
	out     []*moverv1.DriveResponse
	more    chan struct{} // something is in out
	hauls   map[string]*haul
}

// maxCarriers bounds the mover processes that were given up and have not ended.
const maxCarriers = 16

// serveCarrier lives as long as the process at the other end.
func (b *Broker) serveCarrier(c *attach.Conn) {
	k, err := b.newCarrier(c)
	if err == nil {
		offer := b.offer()
		offer.Attach = []byte(k.token)
		poolFile, tagsFile := b.pool.Files()
		if err = c.Grant(offer, poolFile, tagsFile); err == nil {
			b.cfg.Log.Info("mover attached", "mover", k.name, "pid", c.Peer.PID)
		}
	} else {
		c.Refuse(err)
	}
	if err != nil {
		b.cfg.Log.Warn("mover refused", "mover", c.Worker, "error", err)
	}
	if k == nil {
		return
	}
	select {
	case <-c.Closed():
	case <-c.Exited():
	case <-b.ctx.Done():
		return
	}
	k.lose(errs.New(errs.Unavailable, "the mover process's attach connection ended"))
	select {
	case <-c.Exited():
		b.carrierGone(k)
	case <-b.ctx.Done():
	}
}

// newCarrier makes the process the broker's mover, when there is none that works.
func (b *Broker) newCarrier(c *attach.Conn) (*carrier, error) {
	if !b.moves(ucx) {
		return nil, errs.New(errs.Denied, "attach: this broker has no use for a mover process")
	}
	if err := c.Want.Match(b.offer()); err != nil {
		return nil, err
	}
	k := &carrier{name: c.Worker, token: string(proof.NewID()), instance: string(c.Mover), conn: c, more: make(chan struct{}, 1), hauls: map[string]*haul{}}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.carrier != nil && b.carrier.broken() == nil {
		return nil, errs.New(errs.Exhausted, "attach: this broker has a mover process, %q", b.carrier.name)
	}
	if len(b.carriers) >= maxCarriers {
		return nil, errs.New(errs.Exhausted, "attach: %d mover processes have not ended, at most %d", len(b.carriers), maxCarriers)
	}
	b.carrier = k
	b.carriers[lease.Attach([]byte(k.token))] = struct{}{}
	return k, nil
}

// carrierGone passes on the proof that nothing of the process reads or writes any more.
func (b *Broker) carrierGone(k *carrier) {
	b.mu.Lock()
	if b.carrier == k {
		b.carrier = nil
	}
	delete(b.carriers, lease.Attach([]byte(k.token)))
	b.acquit(lease.Attach([]byte(k.token)))
	b.mu.Unlock()
	k.mu.Lock()
	left := len(k.hauls)
	for id, h := range k.hauls {
		close(h.drained)
		delete(k.hauls, id)
	}
	k.mu.Unlock()
	b.cfg.Log.Info("mover process gone", "mover", k.name, "transfers", left)
}

// broken says why the carrier takes nothing any more.
func (k *carrier) broken() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lost
}

// lose fails all transfers; their pages wait for the process's end.
func (k *carrier) lose(why error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lost != nil {
		return
	}
	k.lost = why
	for _, h := range k.hauls {
		h.failLocked(why)
	}
	notify(k.more)
}

// haulBy is a new transfer at the mover process, which begins with what first makes of its address.
func (b *Broker) haulBy(id []byte, first func(address []byte) *moverv1.DriveResponse) (*haul, error) {
	b.mu.Lock()
	k := b.carrier
	b.mu.Unlock()
	if k == nil {
		return nil, errs.New(errs.Unavailable, "pull: no mover process is attached")
	}
	if len(id) != proof.IDSize {
		return nil, errs.New(errs.Invalid, "pull: transfer id of %d bytes, want %d", len(id), proof.IDSize)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.lost != nil:
		return nil, k.lost
	case k.address == nil:
		return nil, errs.New(errs.Unavailable, "pull: the mover process is not ready")
	case k.hauls[string(id)] != nil:
		return nil, errs.New(errs.Invalid, "pull: the transfer is there already")
	}
	h := &haul{k: k, id: id, address: k.address, changed: make(chan struct{}, 1), flushed: make(chan struct{}, 1), drained: make(chan struct{})}
	k.hauls[string(id)] = h
	k.tell(first(k.address))
	return h, nil
}

// tell queues a message. Callers hold mu.
func (k *carrier) tell(r *moverv1.DriveResponse) {
	if k.lost == nil {
		k.out = append(k.out, r)
		notify(k.more)
	}
}

// checkCarrier says why pages cannot go by ucx.
func (b *Broker) checkCarrier() error {
	if !b.moves(ucx) {
		return nil
	}
	b.mu.Lock()
	k := b.carrier
	b.mu.Unlock()
	if k == nil {
		return errs.New(errs.Unavailable, "no mover process is attached, and mover ucx is asked for")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lost != nil {
		return k.lost
	}
	if k.address == nil {
		return errs.New(errs.Unavailable, "the mover process is not ready")
	}
	return nil
}

// haul is one transfer at the mover process. It implements mover.Haul. The carrier's mu guards it.
type haul struct {
	k       *carrier
	id      []byte
	address []byte        // of this broker's mover
	changed chan struct{} // of what is below, but given and sent
	flushed chan struct{} // of sent, or there is an error
	drained chan struct{}

	expected    bool
	landed      []mover.Landing
	given, sent int
	err         error
	ended       bool
}

func (h *haul) failLocked(why error) {
	if h.err == nil {
		h.err = why
	}
	notify(h.changed)
	notify(h.flushed)
}

// await waits until the mover process expects the transfer's pages.
func (h *haul) await(ctx context.Context) error {
	for {
		h.k.mu.Lock()
		expected, err := h.expected, h.err
		h.k.mu.Unlock()
		if expected || err != nil {
			return err
		}
		select {
		case <-h.changed:
		case <-ctx.Done():
			return errs.Mark(context.Cause(ctx), errs.Unavailable)
		}
	}
}

// Flush implements mover.Haul.
func (h *haul) Flush(ctx context.Context) error {
	for {
		h.k.mu.Lock()
		done, err := h.sent == h.given, h.err
		h.k.mu.Unlock()
		if done || err != nil {
			return err
		}
		select {
		case <-h.flushed:
		case <-ctx.Done():
			return errs.Mark(context.Cause(ctx), errs.Unavailable)
		}
	}
}

// Landed implements mover.Haul.
func (h *haul) Landed(ctx context.Context) (mover.Landing, error) {
	for {
		h.k.mu.Lock()
		landed, err := h.landed, h.err
		if len(landed) > 0 {
			h.landed = landed[1:]
		}
		h.k.mu.Unlock()
		switch {
		case len(landed) > 0:
			return landed[0], nil
		case err != nil:
			return mover.Landing{}, err
		}
		select {
		case <-h.changed:
		case <-ctx.Done():
			return mover.Landing{}, context.Cause(ctx)
		}
	}
}

// Send implements mover.Haul.
func (h *haul) Send(place, page uint32) error {
	h.k.mu.Lock()
	defer h.k.mu.Unlock()
	if h.err != nil {
		return h.err
	}
	if h.ended {
		return errs.New(errs.Unavailable, "pull: the transfer has ended")
	}
	h.given++
	h.k.tell(&moverv1.DriveResponse{Kind: &moverv1.DriveResponse_Send{Send: &moverv1.Send{Transfer: h.id, Place: place, Page: page}}})
	return nil
}

// End implements mover.Haul.
func (h *haul) End() {
	h.k.mu.Lock()
	defer h.k.mu.Unlock()
	if h.ended {
		return
	}
	h.ended = true
	h.k.tell(&moverv1.DriveResponse{Kind: &moverv1.DriveResponse_End{End: &moverv1.End{Transfer: h.id}}})
}

// Drained implements mover.Haul.
func (h *haul) Drained() <-chan struct{} { return h.drained }
