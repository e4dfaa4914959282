package kvbroker

import (
	"context"
	"encoding/hex"
	"strconv"

	"google.golang.org/grpc"

	"leasehold.dev/kvbroker/server"
	"leasehold.dev/mesh"
	"leasehold.dev/mesh/identity"
	"leasehold.dev/mesh/peers"
	"leasehold.dev/mesh/rpc"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	"leasehold.dev/protos/proof"
)

const service = "kvbroker"

// Run is the process: it serves until ctx ends, and drains.
func Run(ctx context.Context, args []string) error {
	f, err := parse(args)
	if err != nil {
		return err
	}
	c, err := f.server()
	if err != nil {
		return err
	}
	c.Instance = proof.NewID()
	hash := c.Layout.Hash()
	f.mesh.Meta = map[string]string{
		"instance": hex.EncodeToString(c.Instance), "layout": hex.EncodeToString(hash[:]),
		"revision": hex.EncodeToString(c.ModelRevision[:]), "pages": strconv.FormatUint(uint64(c.Pages), 10),
	}
	srv, err := mesh.New(ctx, f.mesh, rpc.BulkServer()...)
	if err != nil {
		return err
	}
	defer func() { _ = srv.Close() }()
	c.Name, c.Log, c.Meter, c.Boundary, c.Audit = srv.ID(), srv.Log, srv.Meter, srv.Boundary, srv.Audit
	if !f.mesh.Insecure {
		c.Caller = callingBroker
	}
	if srv.Registry != nil {
		var all brokers
		for range f.pullLanes { // a set a lane: each has a connection of its own
			set, err := srv.Peers(context.WithoutCancel(ctx), service, rpc.BulkDial()...)
			if err != nil {
				return err
			}
			defer set.Close()
			all.sets = append(all.sets, set)
		}
		c.Peers = all
	}
	c.Wire = wire{srv.Identity}
	if err := listenData(f.dataListen, srv.Addr(), f.mesh.Advertise, f.mesh.Insecure, &c); err != nil {
		return err
	}
	if c.Data != nil {
		defer c.Data.Close()
	}
	b, err := server.New(c)
	if err != nil {
		return err
	}
	defer b.Close()
	b.Register(srv.GRPC())
	srv.Allow(brokerv1.PeerService_Handshake_FullMethodName, service)
	srv.Allow(brokerv1.PeerService_Pull_FullMethodName, service)
	srv.Allow(brokerv1.PeerService_Lane_FullMethodName, service)
	srv.Allow(brokerv1.PeerService_Drained_FullMethodName, service)
	srv.Allow(brokerv1.InfoService_Describe_FullMethodName, service, "router", "prefill", "decode", "cli")
	srv.Allow(brokerv1.RecordService_Follow_FullMethodName, "router")
	srv.Check("pool", b.Ready)
	srv.OnDrain(b.Drain)
	return srv.Run(ctx)
}

// callingBroker is the broker that the caller's certificate names.
func callingBroker(ctx context.Context) (string, bool) {
	s, id, ok := identity.Peer(ctx)
	return id, ok && s == service
}

// brokers are the registry's, each behind its breaker: the first set's for calls, the others' for lanes.
type brokers struct{ sets []*peers.Set }

// Call implements [server.Peers].
func (b brokers) Call(name string, f func(grpc.ClientConnInterface) error) error {
	p := b.sets[0].Get(name)
	if p == nil {
		return errs.New(errs.Unavailable, "broker %q is not listed", name)
	}
	return p.Do(func() error { return f(p.Conn) })
}

// More implements [server.Peers].
func (b brokers) More(name string, n int) []grpc.ClientConnInterface {
	var out []grpc.ClientConnInterface
	for _, set := range b.sets[1:] {
		if p := set.Get(name); p != nil && len(out) < n {
			out = append(out, p.Conn)
		}
	}
	return out
}
