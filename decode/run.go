package decode

import (
	"context"
	"flag"
	"strconv"
	"sync"

	"leasehold.dev/gpu/worker"
	"leasehold.dev/kvbroker/client"
	"leasehold.dev/mesh"
	"leasehold.dev/mesh/boundary"
	"leasehold.dev/protos/errs"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

// Run is the process: it serves until ctx ends, and drains.
func Run(ctx context.Context, args []string) error {
	c, w := mesh.Config{Service: "decode"}, worker.Config{}
	fs := flag.NewFlagSet("leasehold-decode", flag.ContinueOnError)
	c.Flags(fs)
	w.Flags(fs)
	self := fs.Int("self-prefill", 0, "longest prompt, in `tokens`, to compute without prefill although there is some (negative: never, even if there is none)")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return errs.New(errs.Invalid, "unexpected argument %q", fs.Arg(0))
	}
	c.Meta = map[string]string{"self_prefill": strconv.Itoa(*self)}
	srv, err := mesh.New(ctx, c)
	if err != nil {
		return err
	}
	defer func() { _ = srv.Close() }()
	host, err := worker.Open(w, worker.Own{ID: srv.ID(), Log: srv.Log, Meter: srv.Meter}, Broker(w.BrokerDir, srv.ID(), srv.Boundary))
	if err != nil {
		return err
	}
	defer host.Close()
	service := NewService(host, Options{
		Movers: []meshv1.Mover{meshv1.Mover_MOVER_LOCAL, meshv1.Mover_MOVER_SHM, meshv1.Mover_MOVER_UCX,
			meshv1.Mover_MOVER_GRPC},
		SelfPrefill: *self, Stop: srv.Draining(), Log: srv.Log, Audit: srv.Audit,
	})
	decodev1.RegisterDecodeServiceServer(srv.GRPC(), service)
	srv.Allow(decodev1.DecodeService_Generate_FullMethodName, "router")
	srv.Allow(decodev1.DecodeService_Watch_FullMethodName, "router", "cli")
	srv.Check("engine", service.Ready)
	srv.OnDrain(func(context.Context) { host.Drain() })

	var running sync.WaitGroup
	defer running.Wait()
	attached, detach := context.WithCancel(context.WithoutCancel(ctx))
	defer detach()
	running.Go(func() { host.Run(attached) })
	return srv.Run(ctx)
}

// Broker is how a worker reaches the broker whose runtime directory is dir. b may be nil.
func Broker(dir, id string, b *boundary.Recorder) worker.Dial[*client.Client] {
	return worker.Dial[*client.Client]{
		Attach: func(ctx context.Context, own worker.Facts) (*client.Client, error) {
			return client.Attach(ctx, client.Config{Dir: dir, Worker: id, Expect: client.Info(own), Boundary: b})
		},
		Facts: func(c *client.Client) worker.Facts { return worker.Facts(c.Info()) },
		Pool:  func(c *client.Client) worker.PoolState { return worker.PoolState(c.Pool()) },
	}
}
