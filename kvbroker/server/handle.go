package server

import (
	"errors"
	"net"
	"strings"

	"leasehold.dev/kvbroker/attach"
	"leasehold.dev/kvbroker/lease"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/proof"
)

// maxHandles bounds the attached processes, and the dead handles of living ones that still have leases.
const maxHandles = 1024

// handle is one attach. The Broker's mu guards its fields below wake.
type handle struct {
	token   lease.Attach
	worker  string
	epoch   uint64
	conn    *attach.Conn
	dead    chan struct{} // closed with the socket: only Retire is taken from it then
	dropped chan struct{} // closed when a later handle of the process has taken its place
	wake    chan struct{} // of its Watch

	hungUp  bool
	watched bool
	revokes []*brokerv1.Revoked // not yet told
	calls   map[string]*call    // by request id
}

func (h *handle) wakeUp() { notify(h.wake) }

func (h *handle) revoked(e lease.Revoked) {
	h.revokes = append(h.revokes, &brokerv1.Revoked{Lease: e.Lease[:], Code: uint32(e.Kind.Code()), Reason: clip(e.Reason)})
}

// acceptWorkers gives every process that connects a goroutine of its own, until the listener closes.
func (b *Broker) acceptWorkers() {
	for {
		p, err := b.attachLn.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			b.cfg.Log.Error("attach socket", "error", err)
			return
		}
		b.wg.Go(func() { b.serveAttach(p) })
	}
}

// serveAttach lives as long as the process at the other end.
func (b *Broker) serveAttach(p *attach.Pending) {
	c, err := p.Identify()
	if err != nil {
		b.cfg.Log.Warn("attach refused", "error", err)
		return
	}
	defer c.Forget()
	if c.Reader != nil {
		b.serveReader(c)
		return
	}
	if c.Mover != nil {
		b.serveCarrier(c)
		return
	}
	offer := b.offer()
	h, err := b.admit(c, offer)
	if err == nil {
		offer.Epoch, offer.Attach = h.epoch, h.token[:]
		poolFile, tagsFile := b.pool.Files()
		if err = c.Grant(offer, poolFile, tagsFile); err == nil {
			b.cfg.Log.Info("worker attached", "worker", h.worker, "pid", c.Peer.PID, "epoch", h.epoch)
		}
	} else {
		c.Refuse(err)
	}
	if err != nil {
		b.cfg.Log.Warn("attach refused", "worker", c.Worker, "error", err)
	}
	if h == nil {
		return
	}
	select {
	case <-c.Closed():
	case <-c.Exited():
	case <-b.ctx.Done():
		return
	}
	b.hangUp(h, "the worker's attach connection ended")
	select {
	case <-c.Exited():
		b.workerGone(h)
	case <-h.dropped:
	case <-b.ctx.Done():
	}
}

// admit gives a handle to a process that wants what this broker has. One that does not gets no descriptor and leaves
// nothing behind, however often it comes back.
func (b *Broker) admit(c *attach.Conn, o attach.Offer) (*handle, error) {
	if err := c.Want.Match(o); err != nil {
		return nil, err
	}
	return b.newHandle(c)
}

func (b *Broker) newHandle(c *attach.Conn) (*handle, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	earlier := b.earlier(c)
	if n := len(b.handles) - len(earlier); n >= maxHandles {
		return nil, errs.New(errs.Exhausted, "%d attach handles, at most %d", n, maxHandles)
	}
	b.epoch++
	h := &handle{token: lease.Attach(proof.NewID()), worker: c.Worker, epoch: b.epoch, conn: c, dead: make(chan struct{}),
		dropped: make(chan struct{}), wake: make(chan struct{}, 1), calls: map[string]*call{}}
	ev := lease.Attached{Attach: h.token, Worker: h.worker, PID: uint32(c.Peer.PID), Epoch: h.epoch}
	if _, err := b.stepLocked(ev); err != nil {
		return nil, err
	}
	b.handles[h.token] = h
	for _, old := range earlier {
		b.replace(old, h)
	}
	return h, nil
}

// earlier are the dead handles, without leases, of the process behind c. It is the same process when it has the same
// number and the earlier one, looked at now, has not exited. Callers hold mu.
func (b *Broker) earlier(c *attach.Conn) (out []*handle) {
	for _, h := range b.handles {
		if h.hungUp && c.Peer.PID > 0 && h.conn.Peer.PID == c.Peer.PID && len(b.leasesOf(h)) == 0 && h.conn.Alive() {
			out = append(out, h)
		}
	}
	return out
}

// replace lets a later handle stand for the process of a dead one, so that a worker may attach anew for as long as it
// lives: what was waiting for the old handle's process to exit waits for the new one's. Callers hold mu.
func (b *Broker) replace(old, h *handle) {
	if _, err := b.stepLocked(lease.Detached{Attach: old.token}); err != nil {
		b.cfg.Log.Error("the table refused a report", "event", "lease.Detached", "error", err)
		return
	}
	for _, s := range b.withheld {
		if _, ok := s[old.token]; ok {
			delete(s, old.token)
			s[h.token] = struct{}{}
		}
	}
	delete(b.handles, old.token)
	close(old.dropped)
}

// offer is what every worker is told, without what is its own.
func (b *Broker) offer() attach.Offer {
	return attach.Offer{
		Broker: b.cfg.Name, Instance: b.instance, LayoutHash: b.own.LayoutHash,
		ModelRevision: b.own.ModelRevision, TokenizerRevision: b.cfg.TokenizerRevision[:],
		NumericsClass: b.cfg.NumericsClass, Pages: b.cfg.Pages, PageBytes: b.own.PageBytes, Host: b.cfg.Host, Fabric: b.cfg.Fabric,
		Movers: moverNames(b.cfg.Movers),
	}
}

func moverNames(movers []meshv1.Mover) (names []string) {
	for _, m := range movers {
		names = append(names, strings.ToLower(strings.TrimPrefix(m.String(), "MOVER_")))
	}
	return names
}

// hangUp ends the handle. Its leases go to quarantine: the process may live on, with the pool mapped.
func (b *Broker) hangUp(h *handle, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h.hungUp {
		return
	}
	h.hungUp = true
	close(h.dead)
	for _, l := range b.leasesOf(h) {
		b.reportLocked(lease.Revoke{Lease: l, Kind: errs.Unavailable, Reason: why})
	}
	b.cfg.Log.Info("worker detached", "worker", h.worker, "epoch", h.epoch, "reason", why)
}

func (b *Broker) leasesOf(h *handle) (ids []lease.ID) {
	for id, l := range b.held {
		if l.ref.Attach == h.token {
			ids = append(ids, id)
		}
	}
	return ids
}

// workerGone passes on the proof that nothing of the process writes or reads any more.
func (b *Broker) workerGone(h *handle) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reportLocked(lease.WorkerGone{Attach: h.token})
	delete(b.handles, h.token)
	b.acquit(h.token)
	b.cfg.Log.Info("worker process gone", "worker", h.worker, "epoch", h.epoch)
}

// handleOf finds a live handle by its token.
func (b *Broker) handleOf(token []byte) (*handle, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(token) == len(lease.Attach{}) {
		if h := b.handles[lease.Attach(token)]; h != nil && !h.hungUp {
			return h, nil
		}
	}
	return nil, errs.New(errs.Stale, "no such attach handle: attach again")
}
