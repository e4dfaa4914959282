package server

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"

	"leasehold.dev/gpu/pool"
	"leasehold.dev/kvbroker/attach"
	"leasehold.dev/kvbroker/mover"
	"leasehold.dev/kvbroker/transfer"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/fault"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
)

// neighbour is another broker of this host, with its pool mapped for reading.
type neighbour struct {
	met     chan struct{} // closed when the fields below are there
	err     error
	view    *pool.View
	session *attach.Session

	users int  // Pulls that may read the view
	left  bool // the session has ended: no new user, and the view goes with the last
}

// meetTimeout bounds an attach: the peer is local and has nothing to compute.
const meetTimeout = 5 * time.Second

// neighbours are the pools that this broker reads from, by the instance of their owner.
type neighbours struct {
	mu  sync.Mutex
	all map[string]*neighbour
}

// visit maps the pool of a peer, or finds it mapped. The caller leaves it.
func (b *Broker) visit(ctx context.Context, peer *brokerv1.BrokerIdentity) (*neighbour, error) {
	if peer.Host == "" || peer.Host != b.cfg.Host {
		return nil, errs.New(errs.Invalid, "pull: broker %q is on host %q, this one on %q: no memory is shared", peer.Name, peer.Host, b.cfg.Host)
	}
	v := &b.neighbours
	v.mu.Lock()
	n := v.all[string(peer.Instance)]
	first := n == nil
	if first {
		n = &neighbour{met: make(chan struct{})}
		v.all[string(peer.Instance)] = n
	}
	n.users++
	v.mu.Unlock()
	if first {
		b.meet(n, peer)
	}
	select {
	case <-n.met:
	case <-ctx.Done():
		b.leave(n)
		return nil, errs.Mark(context.Cause(ctx), errs.Unavailable)
	}
	if n.err != nil {
		b.leave(n)
		return nil, n.err
	}
	return n, nil
}

// meet is the first visit. It is for all who come: the end of the Pull that came first does not end it.
func (b *Broker) meet(n *neighbour, peer *brokerv1.BrokerIdentity) {
	ctx, cancel := context.WithTimeout(b.ctx, meetTimeout)
	defer cancel()
	n.err = b.attachTo(ctx, n, peer)
	if n.err != nil {
		b.neighbours.mu.Lock()
		delete(b.neighbours.all, string(peer.Instance))
		b.neighbours.mu.Unlock()
	} else {
		b.wg.Go(func() { b.watchNeighbour(n, string(peer.Instance)) })
	}
	close(n.met)
}

func (b *Broker) attachTo(ctx context.Context, n *neighbour, peer *brokerv1.BrokerIdentity) error {
	s, err := attach.DialReader(ctx, peer.RuntimeDir, b.cfg.Name, b.instance, attach.Want{LayoutHash: b.own.LayoutHash,
		ModelRevision: b.own.ModelRevision, TokenizerRevision: b.cfg.TokenizerRevision[:], NumericsClass: b.cfg.NumericsClass,
		PageBytes: b.own.PageBytes})
	if err != nil {
		return err
	}
	defer s.Pool.Close()
	if string(s.Instance) != string(peer.Instance) {
		_ = s.Close()
		return errs.New(errs.Stale, "pull: %s is instance %x now, %x was met", peer.Name, s.Instance, peer.Instance)
	}
	view, err := pool.OpenView(s.Pool, s.Pages, s.PageBytes)
	if err != nil {
		_ = s.Close()
		return err
	}
	n.view, n.session = view, s
	return nil
}

// watchNeighbour lets go of a pool whose broker is gone, once nobody reads it.
func (b *Broker) watchNeighbour(n *neighbour, instance string) {
	select {
	case <-n.session.Closed():
	case <-b.ctx.Done():
	}
	v := &b.neighbours
	v.mu.Lock()
	delete(v.all, instance)
	n.left = true
	n.unmapIdle()
	v.mu.Unlock()
	_ = n.session.Close()
}

func (b *Broker) leave(n *neighbour) {
	b.neighbours.mu.Lock()
	defer b.neighbours.mu.Unlock()
	n.users--
	n.unmapIdle()
}

func (n *neighbour) unmapIdle() {
	if n.left && n.users == 0 {
		_ = n.view.Close()
	}
}

// sharedPull is a Pull by shared memory: a stream that says where pages lie, and the right to read them.
type sharedPull struct {
	*mover.Stream
	d         *destination
	n         *neighbour
	completed bool
	once      sync.Once
}

// Receive implements pull.
func (p *sharedPull) Receive(dst mover.Destination, rx *transfer.Receiver) (*brokerv1.Completion, mover.Moved, error) {
	c, m, err := p.Stream.Receive(dst, rx)
	p.completed = err == nil
	return c, m, err
}

// openShared opens a Pull at a broker of this host.
func (d *destination) openShared(conn grpc.ClientConnInterface, peer *brokerv1.BrokerIdentity, open *brokerv1.PullOpen) (pull, error) {
	n, err := d.b.visit(d.ctx, peer)
	if err != nil {
		return nil, err
	}
	if fault.At(fault.BrokerVisit) == fault.Drop {
		_ = n.session.Close()
	}
	p := &sharedPull{d: d, n: n}
	if p.Stream, err = mover.OpenShared(d.ctx, conn, open, n.view); err != nil {
		p.Close() // the peer may think that it is open
		return nil, err
	}
	return p, nil
}

// Close implements pull. It comes after Receive, or instead of it, so nothing reads the peer's pages any more; a Pull that
// failed says so to the peer, which keeps them from everybody until it hears.
func (p *sharedPull) Close() {
	p.once.Do(func() {
		if p.Stream != nil {
			p.Stream.Close()
		}
		if p.completed || fault.At(fault.BrokerDrained) == fault.Drop {
			p.d.b.leave(p.n)
			return
		}
		p.d.b.wg.Go(func() {
			defer p.d.b.leave(p.n)
			p.tellDrained()
		})
	})
}

// tellDrained tries until the peer has heard or is gone; the end of this broker's process tells it too.
func (p *sharedPull) tellDrained() {
	b := p.d.b
	req := &brokerv1.DrainedRequest{From: b.cfg.Name, FromInstance: b.instance, AdmissionId: p.d.ticket.Id, Secret: p.d.secret}
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		last := b.ctx.Err() != nil
		ctx, cancel := context.WithTimeout(context.WithoutCancel(b.ctx), time.Second)
		err := b.peers.peers.Call(p.d.ticket.PrefillBroker, func(conn grpc.ClientConnInterface) error {
			_, err := brokerv1.NewPeerServiceClient(conn).Drained(ctx, req)
			return errs.FromStatus(err)
		})
		cancel()
		if err == nil || last {
			return
		}
		b.cfg.Log.Warn("the end of a read is not told yet", "broker", p.d.ticket.PrefillBroker, "error", err)
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-b.ctx.Done():
			t.Stop()
		case <-p.n.session.Closed():
			t.Stop()
			return
		}
	}
}
