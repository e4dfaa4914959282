package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"

	"leasehold.dev/cli/local"
	"leasehold.dev/integration/driver"
	"leasehold.dev/mesh/identity"
	"leasehold.dev/model"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
)

// Setup is what every scenario is given.
type Setup struct {
	Bin, Model, Cache string
}

// Stage is a running mesh and a hand on everything in it.
type Stage struct {
	*local.Mesh
	Driver *driver.Driver
	Loaded *model.Model
	info   map[string]brokerv1.InfoServiceClient // by broker name
	close  []func() error
}

// Open starts the mesh that change makes of the default one and waits until it is ready. The caller closes the stage.
func Open(ctx context.Context, s Setup, change func(*local.Config)) (*Stage, error) {
	st := &Stage{info: map[string]brokerv1.InfoServiceClient{}}
	if err := st.open(ctx, s, change); err != nil {
		return nil, errors.Join(err, st.Close())
	}
	return st, nil
}

func (st *Stage) open(ctx context.Context, s Setup, change func(*local.Config)) error {
	dir, err := os.MkdirTemp("", "leasehold-stage")
	if err != nil {
		return err
	}
	st.close = append(st.close, func() error { return os.RemoveAll(dir) })
	c := local.Default()
	c.Dir, c.Bin, c.Model, c.Cache = dir, s.Bin, s.Model, s.Cache
	if change != nil {
		change(&c)
	}
	// The audit is off unless change put it on: what it computes would stand in for what a scenario waits to end.
	c.Router = append([]string{"-replay-budget=0"}, c.Router...)
	for i, b := range c.Brokers { // every page, not a share: a late write anywhere is an incident, and a page short
		c.Brokers[i].Args = append([]string{"-check-share=1"}, b.Args...)
	}
	if st.Loaded, err = model.Load(s.Model); err != nil {
		return err
	}
	st.close = append(st.close, st.Loaded.Close)
	if st.Mesh, err = local.Start(ctx, c); err != nil {
		return err
	}
	st.close = append(st.close, func() error { return st.Mesh.Stop(10 * time.Second) })
	if err := st.Ready(ctx); err != nil {
		return err
	}
	if st.Driver, err = driver.Open(ctx, st.Mesh, st.Loaded.Revision); err != nil {
		return err
	}
	st.close = append(st.close, func() error { st.Driver.Close(); return nil })
	return st.dialBrokers(ctx)
}

func (st *Stage) dialBrokers(ctx context.Context) error {
	id, err := identity.Load(st.CLIIdentity())
	if err != nil {
		return err
	}
	for _, b := range st.Brokers {
		a, err := st.Process("kvbroker/" + b.Name).Addr(ctx)
		if err != nil {
			return err
		}
		cc, err := grpc.NewClient("passthrough:///"+a.GRPC, grpc.WithTransportCredentials(id.ClientCreds("kvbroker", b.Name)))
		if err != nil {
			return err
		}
		st.close = append(st.close, cc.Close)
		st.info[b.Name] = brokerv1.NewInfoServiceClient(cc)
	}
	return nil
}

// Close stops everything, the last opened first.
func (st *Stage) Close() error {
	var all []error
	for i := len(st.close) - 1; i >= 0; i-- {
		all = append(all, st.close[i]())
	}
	st.close = nil
	return errors.Join(all...)
}

// Key is the demo tenant's.
func (st *Stage) Key() string { return st.Tenants["demo"] }

// Describe asks a broker who owns what.
func (st *Stage) Describe(ctx context.Context, broker string) (*brokerv1.DescribeResponse, error) {
	return st.info[broker].Describe(ctx, &brokerv1.DescribeRequest{})
}

// Baseline waits until no page of the named brokers is in use, and says who still holds one when ctx ends first.
func (st *Stage) Baseline(ctx context.Context, brokers ...string) error {
	for _, b := range brokers {
		err := Until(ctx, func() error {
			d, err := st.Describe(ctx, b)
			if err != nil {
				return err
			}
			if d.Pool.Free != d.Pool.Pages || len(d.Leases) > 0 {
				return fmt.Errorf("broker %s: %d of %d pages free, leases %v", b, d.Pool.Free, d.Pool.Pages, d.Leases)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Until repeats f until it returns nil. When ctx ends first, f's last error comes back.
func Until(ctx context.Context, f func() error) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		err := f()
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; last: %w", context.Cause(ctx), last)
		case <-tick.C:
		}
	}
}

// AllUp waits until the router can use every worker: Ready is content with one pair.
func (st *Stage) AllUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, errors.New("30 s are over"))
	defer cancel()
	return Until(ctx, func() error {
		got, err := st.Samples(ctx, "router/router-0")
		if err != nil {
			return err
		}
		d, p := got[`leasehold_router_workers_up{service="decode"}`], got[`leasehold_router_workers_up{service="prefill"}`]
		if int(d) != len(st.Decodes) || int(p) != len(st.Prefills) {
			return fmt.Errorf("the router has %v decode and %v prefill workers, want %d and %d", d, p, len(st.Decodes), len(st.Prefills))
		}
		return nil
	})
}
