package client

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"

	"leasehold.dev/gpu/pool"
	"leasehold.dev/kvbroker/attach"
	"leasehold.dev/mesh/boundary"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/fault"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
)

// Config says which broker to attach to, and as whom.
type Config struct {
	Dir    string // the broker's runtime directory: attach.sock and worker.sock
	Worker string // this worker's instance id, as the mesh knows it
	// Expect is what must be equal before a page may be shared: layout hash, revisions, numerics class and page size.
	// Zero fields are not compared. A broker that differs refuses the attach, with both values.
	Expect Info
	// Boundary hears whether the broker refuses what is of an old epoch. May be nil.
	Boundary *boundary.Recorder
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
	Host              string   // brokers with an equal one can map each other's pools
	Fabric            string   // brokers with an equal one reach each other's mover processes
	Movers            []string // by which the broker moves pages from and to others
}

// PoolState is the pool as the broker last told it.
type PoolState struct {
	Pages, Free uint32
	Draining    bool
	GuardsOff   bool // a guard of the broker is turned off
}

// Client is one attach handle.
type Client struct {
	info     Info
	token    []byte
	session  *attach.Session
	mapping  *pool.Mapping
	conn     *grpc.ClientConn
	rpc      brokerv1.WorkerServiceClient
	boundary *boundary.Recorder

	done chan struct{}
	stop context.CancelFunc // of the watch
	wg   sync.WaitGroup

	mu       sync.Mutex
	dead     error // why done is closed
	pool     PoolState
	leases   map[string]*Lease
	reserves uint64              // that were begun
	inflight map[uint64]struct{} // those under way
	early    map[string]revoked  // revokes of leases whose Reserve may be among them
	probed   time.Time           // when the broker was last asked for what must be refused
}

// revoked came for a lease that is not known: it was granted to one of the Reserves in flight then, or is no more.
type revoked struct {
	why  error
	last uint64 // the newest Reserve in flight
}

// Attach connects to the broker in c.Dir. ctx bounds the attach only.
func Attach(ctx context.Context, c Config) (*Client, error) {
	s, err := attach.Dial(ctx, c.Dir, c.Worker, attach.Want{LayoutHash: c.Expect.LayoutHash, ModelRevision: c.Expect.ModelRevision,
		TokenizerRevision: c.Expect.TokenizerRevision, NumericsClass: c.Expect.NumericsClass, PageBytes: c.Expect.PageBytes})
	if err != nil {
		return nil, err
	}
	c.Boundary.Expect(boundary.P2, boundary.StaleEpoch, "")
	k := &Client{session: s, boundary: c.Boundary, token: s.Attach, done: make(chan struct{}), leases: map[string]*Lease{},
		inflight: map[uint64]struct{}{}, early: map[string]revoked{}}
	k.info = Info{Broker: s.Broker, Instance: s.Instance, Epoch: s.Epoch, LayoutHash: s.LayoutHash, ModelRevision: s.ModelRevision,
		TokenizerRevision: s.TokenizerRevision, NumericsClass: s.NumericsClass, PoolPages: s.Pages, PageBytes: s.PageBytes,
		Host: s.Host, Fabric: s.Fabric, Movers: s.Movers}
	if err := k.start(ctx, c); err != nil {
		_ = k.Close()
		return nil, err
	}
	return k, nil
}

// start maps the pool and opens the worker socket; the first word of Watch says that the broker is there.
func (c *Client) start(ctx context.Context, cfg Config) (err error) {
	c.mapping, err = pool.Map(c.session.Pool, c.session.Tags, c.info.PoolPages, c.info.PageBytes)
	c.session.Pool.Close()
	c.session.Tags.Close()
	if err != nil {
		return err
	}
	path, err := filepath.Abs(filepath.Join(cfg.Dir, attach.WorkerName))
	if err != nil {
		return errs.Mark(err, errs.Invalid)
	}
	c.conn, err = grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(attach.Credentials(uint32(os.Geteuid()))), grpc.WithDisableRetry())
	if err != nil {
		return errs.Mark(err, errs.Internal)
	}
	c.rpc = brokerv1.NewWorkerServiceClient(c.conn)
	watching, stop := context.WithCancel(context.Background())
	c.stop = stop
	w, err := c.rpc.Watch(watching, &brokerv1.WatchRequest{Attach: c.token})
	if err != nil {
		return errs.FromStatus(err)
	}
	unbind := context.AfterFunc(ctx, stop)
	first, err := w.Recv()
	if !unbind() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return errs.Mark(errs.FromStatus(err), errs.Unavailable)
	}
	c.news(first)
	c.wg.Go(func() { c.watch(w) })
	c.wg.Go(func() {
		select {
		case <-c.session.Closed():
			c.die(errs.New(errs.Unavailable, "the broker is gone"))
		case <-c.done:
		}
	})
	return nil
}

// Info returns what the broker said at the attach.
func (c *Client) Info() Info { return c.info }

// Mapping is the pool; valid until Close.
func (c *Client) Mapping() *pool.Mapping { return c.mapping }

// Done is closed when the handle has died.
func (c *Client) Done() <-chan struct{} { return c.done }

// Pool is the latest state of the pool.
func (c *Client) Pool() PoolState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pool
}

// Close gives the handle back, unmaps the pool and waits for the client's goroutines. No kernel may be running.
func (c *Client) Close() error {
	c.die(errs.New(errs.Unavailable, "the handle was closed"))
	if c.stop != nil {
		c.stop()
	}
	if c.conn != nil {
		_ = c.conn.Close()
	}
	err := c.session.Close()
	c.wg.Wait()
	if c.mapping != nil {
		if merr := c.mapping.Close(); err == nil {
			err = merr
		}
	}
	return err
}

// watch takes the broker's news until the stream ends, and the handle with it.
func (c *Client) watch(w grpc.ServerStreamingClient[brokerv1.WatchResponse]) {
	for {
		m, err := w.Recv()
		if err != nil {
			c.die(errs.New(errs.Unavailable, "the broker's watch ended: %w", errs.FromStatus(err)))
			return
		}
		c.news(m)
	}
}

func (c *Client) news(m *brokerv1.WatchResponse) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e := m.Event.(type) {
	case *brokerv1.WatchResponse_Pool:
		c.pool = PoolState{Pages: e.Pool.GetPages(), Free: e.Pool.GetFree(), Draining: e.Pool.GetDraining(), GuardsOff: e.Pool.GetGuardsOff()}
	case *brokerv1.WatchResponse_Revoked:
		if fault.At(fault.ClientRevoked) == fault.Drop {
			return
		}
		why := revokeError(e.Revoked)
		if l := c.leases[string(e.Revoked.GetLease())]; l != nil {
			l.revoke(why)
		} else if len(c.inflight) > 0 {
			c.early[string(e.Revoked.GetLease())] = revoked{why, c.reserves}
		}
	}
}

// die ends the handle: nobody will answer for its leases any more.
func (c *Client) die(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead != nil {
		return
	}
	c.dead = why
	close(c.done)
	for _, l := range c.leases {
		l.revoke(why)
	}
}
