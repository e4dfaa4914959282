package server

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"

	"google.golang.org/grpc"

	"leasehold.dev/gpu/pool"
	"leasehold.dev/kvbroker/attach"
	"leasehold.dev/kvbroker/lease"
	"leasehold.dev/kvbroker/records"
	"leasehold.dev/kvbroker/transfer"
	"leasehold.dev/mesh/boundary"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	moverv1 "leasehold.dev/protos/gen/leasehold/mover/v1"
	"leasehold.dev/protos/pagesum"
)

// Broker owns one pool.
type Broker struct {
	cfg      Config
	instance []byte
	own      transfer.Broker
	keys     *pagesum.Keys
	pool     *pool.Pool
	metrics  *metrics
	peers    *handshakes

	neighbours neighbours
	turns      *turns

	attachLn *attach.Listener
	workerLn net.Listener
	workers  *grpc.Server

	ctx  context.Context // of everything that lives as long as the broker
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu      sync.Mutex
	table   *lease.Table
	epoch   uint64
	handles map[lease.Attach]*handle
	held    map[lease.ID]*held
	parked  map[lease.Admission]*parked

	readers   map[string]*reader          // by instance
	undrained map[lease.Admission]*parked // Pulls that have ended and whose pages may still be read
	carrier   *carrier                    // the mover process that is used; nil: none
	carriers  map[lease.Attach]struct{}   // mover processes that are not gone
	lanes     map[laneToken]laned
	raw       limits
	spent     spent
	dirty     []lease.Zero  // proven pages that wait to be cleared
	wake      chan struct{} // of the goroutine that clears them
	idle      chan struct{} // closed and replaced whenever a lease goes away
	withheld  map[uint32]suspects
	dirtied   map[uint32]struct{} // pages of abandoned leases that were not zero at the grant
	records   *records.Ring
	news      chan struct{} // closed and replaced with each record
	closed    bool
}

// New makes the pool and starts to serve workers. Whatever an earlier instance granted is void.
func New(c Config) (*Broker, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	b := &Broker{
		cfg: c, instance: c.Instance,
		handles: map[lease.Attach]*handle{}, held: map[lease.ID]*held{}, parked: map[lease.Admission]*parked{},
		neighbours: neighbours{all: map[string]*neighbour{}}, turns: newTurns(c.CopyThreads), readers: map[string]*reader{}, carriers: map[lease.Attach]struct{}{},
		undrained: map[lease.Admission]*parked{},
		lanes:     map[laneToken]laned{},
		spent:     newSpent(), withheld: map[uint32]suspects{}, dirtied: map[uint32]struct{}{}, wake: make(chan struct{}, 1), idle: make(chan struct{}),
		records: records.New(keptRecords), news: make(chan struct{}),
	}
	hash := c.Layout.Hash()
	b.own = transfer.Broker{Instance: b.instance, ModelRevision: c.ModelRevision[:], LayoutHash: hash[:], PageBytes: c.Layout.PageBytes()}
	b.keys = pagesum.Expand(hash[:], c.ModelRevision[:], c.Layout.Shape())
	b.peers = &handshakes{own: b.identity(), peers: c.Peers, known: map[string]*brokerv1.BrokerIdentity{}}
	b.ctx, b.stop = context.WithCancel(context.Background())
	if err := b.start(); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

func (b *Broker) start() (err error) {
	b.table, err = lease.New(lease.Config{Pages: b.cfg.Pages, Quota: b.cfg.Quota, Share: b.cfg.Share, QuarantineCap: b.cfg.QuarantineCap,
		Generation: rand.Uint64() & pool.MaxGeneration})
	if err != nil {
		return err
	}
	if b.metrics, err = newMetrics(b.cfg.Meter, b); err != nil {
		return errs.Mark(err, errs.Internal)
	}
	b.cfg.Boundary.Expect(boundary.P2, boundary.LateWrite, "")
	b.cfg.Boundary.Expect(boundary.P2, boundary.TagFault, "")
	if err := attach.PrepareDir(b.cfg.Dir); err != nil {
		return err
	}
	if b.pool, err = pool.New(b.cfg.Pages, b.own.PageBytes); err != nil {
		return err
	}
	if b.attachLn, err = attach.Listen(b.cfg.Dir, b.cfg.UIDs); err != nil {
		return err
	}
	if b.workerLn, err = attach.ListenWorker(b.cfg.Dir); err != nil {
		return errs.Mark(err, errs.Unavailable)
	}
	b.workers = grpc.NewServer(grpc.Creds(attach.Credentials(b.cfg.UIDs...)),
		grpc.ChainUnaryInterceptor(unaryErrors), grpc.ChainStreamInterceptor(streamErrors), grpc.MaxRecvMsgSize(maxWorkerMessage), grpc.WaitForHandlers(true))
	brokerv1.RegisterWorkerServiceServer(b.workers, &workerService{b: b})
	moverv1.RegisterMoverServiceServer(b.workers, &moverService{b: b})
	b.auditStart()
	b.wg.Go(b.clearPages)
	b.wg.Go(b.acceptWorkers)
	b.wg.Go(b.serveWorkers)
	if b.cfg.Data != nil {
		b.wg.Go(b.acceptRaw)
	}
	return nil
}

func (b *Broker) serveWorkers() {
	if err := b.workers.Serve(b.workerLn); err != nil && b.ctx.Err() == nil {
		b.cfg.Log.Error("worker socket", "error", err)
	}
}

// maxWorkerMessage is room for the token ids of the longest request: 2^20 ids of 5 bytes, and the rest.
const maxWorkerMessage = 8 << 20

// Register adds the services for brokers, routers and operators to s, which maps errors by package errs.
func (b *Broker) Register(s grpc.ServiceRegistrar) {
	brokerv1.RegisterPeerServiceServer(s, &peerService{b: b})
	brokerv1.RegisterInfoServiceServer(s, &infoService{b: b})
	brokerv1.RegisterRecordServiceServer(s, &recordService{b: b})
}

// Instance is this start's id.
func (b *Broker) Instance() []byte { return b.instance }

// Ready says why new leases would be refused.
func (b *Broker) Ready(context.Context) error {
	if err := b.checkCarrier(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if why := b.table.Draining(); why != "" {
		return errs.New(errs.Unavailable, "no page is granted: %s", why)
	}
	return nil
}

// Drain stops granting and waits until no lease is left, or ctx ends.
func (b *Broker) Drain(ctx context.Context) {
	b.report(lease.Drain{Reason: "the broker stops"})
	for {
		b.mu.Lock()
		left, changed := len(b.held), b.idle
		b.mu.Unlock()
		if left == 0 {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// Close ends every call and attach, and waits for all that touches the pool. Workers see the end of their attach
// sockets; the memory lives on while they map it.
func (b *Broker) Close() {
	b.mu.Lock()
	b.closed = true
	for _, h := range b.held {
		h.stopTimer(b)
	}
	b.mu.Unlock()
	b.stop()
	if b.attachLn != nil {
		_ = b.attachLn.Close()
	}
	if b.cfg.Data != nil {
		_ = b.cfg.Data.Close()
	}
	if b.workers != nil {
		b.workers.Stop()
	}
	b.wg.Wait()
	if b.metrics != nil {
		b.metrics.close()
	}
	if b.pool != nil {
		_ = b.pool.Close()
	}
}

func (b *Broker) identity() *brokerv1.BrokerIdentity {
	return &brokerv1.BrokerIdentity{
		Name: b.cfg.Name, Instance: b.instance, Protocol: Protocol, LayoutHash: b.own.LayoutHash,
		ModelRevision: b.own.ModelRevision, TokenizerRevision: b.cfg.TokenizerRevision[:],
		NumericsClass: b.cfg.NumericsClass, PoolPages: b.cfg.Pages, Host: b.cfg.Host, RuntimeDir: b.cfg.Dir,
		DataAddress: b.cfg.DataAddress,
	}
}
