package server

import (
	"bytes"
	"context"
	"crypto/subtle"

	"leasehold.dev/kvbroker/attach"
	"leasehold.dev/kvbroker/lease"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	"leasehold.dev/protos/proof"
)

// maxReaders bounds the brokers of this host that read pages by shared memory.
const maxReaders = 64

// reader is another broker's process, which has this pool mapped read-only. The Broker's mu guards the map that it is in.
type reader struct {
	name     string
	instance string
	conn     *attach.Conn
	replaced chan struct{} // closed when the process has attached again
	gone     bool          // the process has exited; guarded by the Broker's mu
}

// serveReader lives as long as the process at the other end: its closed socket proves nothing.
func (b *Broker) serveReader(c *attach.Conn) {
	r, err := b.newReader(c)
	if err != nil {
		c.Refuse(err)
		b.cfg.Log.Warn("reader refused", "broker", c.Worker, "error", err)
		return
	}
	if err := b.lendPool(c); err != nil {
		b.cfg.Log.Warn("reader refused", "broker", c.Worker, "error", err)
		c.Refuse(err)
	} else {
		b.cfg.Log.Info("reader attached", "broker", r.name, "pid", c.Peer.PID)
	}
	select {
	case <-c.Exited():
		b.readerGone(r)
	case <-r.replaced:
	case <-b.ctx.Done():
	}
}

func (b *Broker) lendPool(c *attach.Conn) error {
	f, err := b.pool.ReadOnly()
	if err != nil {
		return err
	}
	defer f.Close()
	return c.Grant(b.offer(), f)
}

func (b *Broker) newReader(c *attach.Conn) (*reader, error) {
	if !b.moves(shm) {
		return nil, errs.New(errs.Denied, "attach: this broker lends no pages by shared memory")
	}
	if err := c.Want.Match(b.offer()); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	r := &reader{name: c.Worker, instance: string(c.Reader), conn: c, replaced: make(chan struct{})}
	old := b.readers[r.instance]
	switch {
	case old != nil && (c.Peer.PID <= 0 || old.conn.Peer.PID != c.Peer.PID || !old.conn.Alive()):
		return nil, errs.New(errs.Denied, "attach: instance %x is another process's", c.Reader)
	case old == nil && len(b.readers) >= maxReaders:
		return nil, errs.New(errs.Exhausted, "attach: %d readers, at most %d", len(b.readers), maxReaders)
	case old != nil:
		close(old.replaced)
		for _, p := range b.undrained {
			if p.reader == old {
				p.reader = r
			}
		}
		for _, p := range b.parked {
			if p.reader == old {
				p.reader = r
			}
		}
	}
	b.readers[r.instance] = r
	return r, nil
}

// readerGone passes on the proof that nothing of the process reads any more.
func (b *Broker) readerGone(r *reader) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.gone = true
	delete(b.readers, r.instance)
	for id, p := range b.undrained {
		if p.reader == r {
			b.drained(id, p)
		}
	}
	b.cfg.Log.Info("reader process gone", "broker", r.name)
}

// readerOf is the attached process of the broker that opens a Pull by shared memory. Callers hold mu.
func (b *Broker) readerOf(name string, instance []byte) (*reader, error) {
	r := b.readers[string(instance)]
	if r == nil || r.name != name {
		return nil, errs.New(errs.Unavailable, "pull: broker %q has not attached to read this pool", name)
	}
	return r, nil
}

// Lend implements [mover.Lender].
func (p *parked) Lend(place uint32) (page uint32, more bool, err error) {
	page = p.toRead(place)
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	if p.err != nil {
		return 0, false, p.err
	}
	p.lent = true
	return page, len(p.queue) > 0, nil
}

// mayBeRead says whether pages of a Pull that has ended with err may still be read: by the receiver, when it has failed, or
// by the mover process, however it ended. Callers hold mu.
func (p *parked) mayBeRead(err error) bool {
	if p.haul != nil {
		return p.lent
	}
	return err != nil && p.lent && !p.drained && !p.reader.gone
}

// drained ends a Pull whose pages are not read any more. Callers hold mu.
func (b *Broker) drained(id lease.Admission, p *parked) {
	delete(b.undrained, id)
	b.reportLocked(lease.PullEnded{Lease: p.ref.Lease, OK: p.ok})
}

// opened says whether p is the very Pull that the caller speaks of.
func (p *parked) opened(req *brokerv1.DrainedRequest) bool {
	return p != nil && bytes.Equal(p.to, req.FromInstance) && subtle.ConstantTimeCompare(p.secret, req.Secret) == 1
}

// Drained implements PeerService.
func (s *peerService) Drained(ctx context.Context, req *brokerv1.DrainedRequest) (*brokerv1.DrainedResponse, error) {
	if len(req.AdmissionId) != proof.IDSize || len(req.FromInstance) != proof.IDSize {
		return nil, errs.New(errs.Invalid, "drained: admission of %d and instance of %d bytes, want %d", len(req.AdmissionId),
			len(req.FromInstance), proof.IDSize)
	}
	if err := s.b.checkCaller(ctx, req.From); err != nil {
		return nil, err
	}
	id := lease.Admission(req.AdmissionId)
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if p := s.b.undrained[id]; p.opened(req) && p.haul == nil {
		s.b.drained(id, p)
	}
	if p := s.b.parked[id]; p.opened(req) {
		p.drained = true
	}
	return &brokerv1.DrainedResponse{}, nil
}
