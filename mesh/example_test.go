package mesh_test

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"leasehold.dev/mesh"
	"leasehold.dev/mesh/registry/embedded"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

// worker stands for what a service does.
type worker struct {
	meshv1.UnimplementedRegistryServiceServer
	attached atomic.Bool
	asked    chan struct{}
}

func (w *worker) ready(context.Context) error {
	defer func() {
		select {
		case w.asked <- struct{}{}:
		default:
		}
	}()
	if !w.attached.Load() {
		return fmt.Errorf("not attached")
	}
	return nil
}

// Run is a service's Run, as its main calls it with a context that ends on SIGTERM.
func Run(ctx context.Context, c mesh.Config, w *worker) error {
	s, err := mesh.New(ctx, c)
	if err != nil {
		return err
	}
	defer s.Close()
	meshv1.RegisterRegistryServiceServer(s.GRPC(), w)
	s.Allow(meshv1.RegistryService_Watch_FullMethodName, "router", "decode")
	s.Check("broker", w.ready)
	s.OnDrain(func(context.Context) { fmt.Println("finish the leases") })
	return s.Run(ctx)
}

func Example() {
	ctx, stop := context.WithCancel(context.Background())
	w := &worker{asked: make(chan struct{}, 1)}
	w.attached.Store(true)
	done := make(chan error)
	go func() {
		done <- Run(ctx, mesh.Config{
			Service: "prefill", ID: "p1", Listen: "127.0.0.1:0", Admin: "127.0.0.1:0",
			Insecure: true, Drain: time.Second, LogOutput: io.Discard,
		}, w)
	}()
	<-w.asked
	stop()
	fmt.Println("Run:", <-done)
	// Output:
	// finish the leases
	// Run: <nil>
}

// A process whose service is the registry is the embedded registry.
func ExampleServeRegistry() {
	s, err := mesh.New(context.Background(), mesh.Config{
		Service: embedded.Service, ID: "reg", Listen: "127.0.0.1:0", Admin: "127.0.0.1:0",
		Insecure: true, Drain: time.Second, LogOutput: io.Discard,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	mesh.ServeRegistry(s)
	ctx, stop := context.WithCancel(context.Background())
	stop() // by SIGTERM
	fmt.Println(s.Run(ctx))
	// Output: <nil>
}
