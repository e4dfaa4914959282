//go:build ucx

package haul

import (
	"context"
	"net"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/kvbroker/mover"
	"leasehold.dev/kvbroker/transfer"
	"leasehold.dev/kvbroker/ucx"
	"leasehold.dev/mesh/rpc"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	"leasehold.dev/protos/pagesum"
	"leasehold.dev/protos/proof"
)

// The ucx mover over shared memory: what crosses a socket is the Pull's own few messages. Its rows need no broker's stream
// to a mover process, which is not on the pages' way.
func init() {
	register("ucx", Mover{Serve: serveUCX, Dial: dialUCX("posix")})
	register("ucx_cma", Mover{Serve: serveUCX, Dial: dialUCX("posix,cma")})
}

// carrier is a ucx.Mover and who waits for its events.
type carrier struct {
	m  *ucx.Mover
	wg sync.WaitGroup

	mu    sync.Mutex
	hauls map[ucx.ID]*haul
}

func openCarrier(p *Pages, transports string) (*carrier, error) {
	s, err := newSides(p)
	if err != nil {
		return nil, err
	}
	l, err := p.Load.Layout()
	if err != nil {
		return nil, err
	}
	m, err := ucx.Open(ucx.Config{Pool: p.Pool.Memory(), PageBytes: l.PageBytes(), Transports: strings.Split(transports, ","), Lanes: 1,
		Digest: func(page, rows uint32) (pagesum.Digest, uint32, error) {
			return engine.PageSum(l, p.Pool.Page(page), rows, s.keys)
		}})
	if err != nil {
		return nil, err
	}
	c := &carrier{m: m, hauls: map[ucx.ID]*haul{}}
	c.wg.Go(c.events)
	return c, nil
}

func (c *carrier) close() {
	c.m.Close()
	c.wg.Wait()
}

func (c *carrier) events() {
	for {
		list, err := c.m.Next(context.Background())
		if err != nil {
			return
		}
		c.mu.Lock()
		for _, e := range list {
			switch e := e.(type) {
			case ucx.Landed:
				c.hauls[e.ID].landed <- mover.Landing{Place: e.Place, At: e.At, Found: transfer.Found{Digest: e.Digest, Nonzero: e.Nonzero}}
			case ucx.Sent:
				c.hauls[e.ID].sent <- struct{}{}
			case ucx.Failed:
				c.hauls[e.ID].failed <- e.Err
			case ucx.Drained:
				close(c.hauls[e.ID].drained)
				delete(c.hauls, e.ID)
			}
		}
		c.mu.Unlock()
	}
}

// haul implements mover.Haul.
type haul struct {
	c       *carrier
	id      ucx.ID
	landed  chan mover.Landing
	sent    chan struct{}
	failed  chan error
	drained chan struct{}
	given   int
	once    sync.Once
}

func (c *carrier) haul(id ucx.ID, pages int) *haul {
	h := &haul{c: c, id: id, landed: make(chan mover.Landing, pages), sent: make(chan struct{}, pages), failed: make(chan error, 1),
		drained: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hauls[id] = h
	return h
}

func (h *haul) Landed(ctx context.Context) (mover.Landing, error) {
	select {
	case l := <-h.landed:
		return l, nil
	case err := <-h.failed:
		return mover.Landing{}, err
	case <-ctx.Done():
		return mover.Landing{}, context.Cause(ctx)
	}
}

func (h *haul) Send(place, page uint32) error {
	h.given++
	return h.c.m.Send(h.id, place, page)
}

func (h *haul) Flush(ctx context.Context) error {
	for ; h.given > 0; h.given-- {
		select {
		case <-h.sent:
		case err := <-h.failed:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (h *haul) End()                     { h.once.Do(func() { _ = h.c.m.End(h.id) }) }
func (h *haul) Drained() <-chan struct{} { return h.drained }

// lender is a Source whose pages go by ucx.
type lender struct {
	*Source
}

func (l lender) Lend(place uint32) (page uint32, more bool, err error) {
	return l.of.At[place], false, nil
}

// ucxPeer is the sending broker's face. Its transports are those of who asks first.
type ucxPeer struct {
	brokerv1.UnimplementedPeerServiceServer
	s  *Sources
	mu sync.Mutex
	by map[string]*carrier
}

func (p *ucxPeer) carrier(transports string) (*carrier, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.by[transports] == nil {
		c, err := openCarrier(p.s.Pages, transports)
		if err != nil {
			return nil, err
		}
		p.by[transports] = c
	}
	return p.by[transports], nil
}

// Pull implements PeerService. What is before the space of the address is the transports.
func (p *ucxPeer) Pull(stream grpc.BidiStreamingServer[brokerv1.PullRequest, brokerv1.PullResponse]) error {
	return errs.ToStatus(p.pull(stream))
}

func (p *ucxPeer) pull(stream mover.ServerStream) error {
	open, err := mover.ReceiveOpen(stream)
	if err != nil {
		return err
	}
	transports, address, _ := strings.Cut(string(open.Address), " ")
	c, err := p.carrier(transports)
	if err != nil {
		return err
	}
	src, err := p.s.Park(open)
	if err != nil {
		return err
	}
	h := c.haul(ucx.ID(open.Transfer), len(p.s.At))
	if err := c.m.Provide(h.id, []byte(address), mover.Window(uint64(p.s.Load.PageBytes))); err != nil {
		return err
	}
	err = mover.ServeHauled(stream, lender{src}, h, uint32(p.s.Load.PageBytes))
	<-h.drained
	return err
}

func serveUCX(_ context.Context, _ Options, s *Sources) (Address, func(), error) {
	var a Address
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return a, nil, err
	}
	a.Net = ln.Addr().String()
	srv := grpc.NewServer(append(rpc.BulkServer(), grpc.WaitForHandlers(true))...)
	p := &ucxPeer{s: s, by: map[string]*carrier{}}
	brokerv1.RegisterPeerServiceServer(srv, p)
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(ln) }()
	return a, func() {
		srv.Stop()
		<-done
		for _, c := range p.by {
			c.close()
		}
	}, nil
}

// ucxPuller is the receiving broker's side.
type ucxPuller struct {
	conn       *grpc.ClientConn
	to         *Pages
	c          *carrier
	transports string
}

func dialUCX(transports string) func(context.Context, Options, Address, *Pages) (Puller, error) {
	return func(_ context.Context, _ Options, a Address, to *Pages) (Puller, error) {
		conn, err := grpc.NewClient("passthrough:///"+a.Net, append(rpc.BulkDial(), grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDisableRetry())...)
		if err != nil {
			return nil, err
		}
		c, err := openCarrier(to, transports)
		if err != nil {
			_ = conn.Close()
			return nil, err
		}
		return &ucxPuller{conn, to, c, transports}, nil
	}
}

// Pull implements Puller.
func (p *ucxPuller) Pull(ctx context.Context, open *brokerv1.PullOpen, rx *transfer.Receiver) (Pulled, error) {
	id := ucx.ID(proof.NewID())
	rows := make([]uint32, len(p.to.At))
	for i := range rows {
		rows[i] = pagesum.PageTokens
	}
	h := p.c.haul(id, len(p.to.At))
	if err := p.c.m.Expect(ucx.Expectation{ID: id, Pages: p.to.At, Rows: rows, Window: mover.Window(uint64(p.to.Load.PageBytes))}); err != nil {
		return Pulled{}, err
	}
	open.Transfer, open.Address = id[:], append([]byte(p.transports+" "), p.c.m.Address()...)
	s, err := mover.OpenHauled(ctx, p.conn, open, h, uint64(p.to.Load.PageBytes))
	if err != nil {
		return Pulled{}, err
	}
	to := &digested{found: make([]transfer.Found, len(p.to.At))}
	c, m, err := s.Receive(to, rx)
	return Pulled{Completion: c, Landed: m.Last, Found: to.found, End: s.End}, err
}

// Close implements Puller.
func (p *ucxPuller) Close() error {
	p.c.close()
	return p.conn.Close()
}

// digested implements mover.Destination for pages that come digested.
type digested struct {
	landed
	found []transfer.Found
}

func (d *digested) Digested(place uint32, f transfer.Found) error {
	d.found[place] = f
	return nil
}
