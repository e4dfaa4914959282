package prefill

import (
	"context"
	"flag"
	"sync"

	"leasehold.dev/gpu/worker"
	"leasehold.dev/kvbroker/client"
	"leasehold.dev/mesh"
	"leasehold.dev/mesh/boundary"
	"leasehold.dev/protos/errs"
	prefillv1 "leasehold.dev/protos/gen/leasehold/prefill/v1"
)

// Run is the process: it serves until ctx ends, and drains.
func Run(ctx context.Context, args []string) error {
	c, w := mesh.Config{Service: "prefill"}, worker.Config{}
	fs := flag.NewFlagSet("leasehold-prefill", flag.ContinueOnError)
	c.Flags(fs)
	w.Flags(fs)
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return errs.New(errs.Invalid, "unexpected argument %q", fs.Arg(0))
	}
	srv, err := mesh.New(ctx, c)
	if err != nil {
		return err
	}
	defer func() { _ = srv.Close() }()
	host, err := worker.Open(w, worker.Own{ID: srv.ID(), Warm: true, Log: srv.Log, Meter: srv.Meter}, Broker(w.BrokerDir, srv.ID(), srv.Boundary))
	if err != nil {
		return err
	}
	defer host.Close()
	service := NewService(host, srv.Log, srv.Audit, srv.Draining())
	prefillv1.RegisterPrefillServiceServer(srv.GRPC(), service)
	srv.Allow(prefillv1.PrefillService_Run_FullMethodName, "router")
	srv.Allow(prefillv1.PrefillService_Watch_FullMethodName, "router", "cli")
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
