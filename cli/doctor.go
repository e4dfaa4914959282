package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"leasehold.dev/cli/doctor"
	"leasehold.dev/cli/rdma"
	"leasehold.dev/mesh/discover"
	"leasehold.dev/mesh/identity"
	"leasehold.dev/mesh/registry"
	"leasehold.dev/mesh/rpc"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	prefillv1 "leasehold.dev/protos/gen/leasehold/prefill/v1"
)

type doctorCommand struct {
	psCommand
	Want map[string]int `help:"Least number of passing processes of a service, as prefill=2; may be repeated (default: 1 each)." placeholder:"SERVICE=N"`
	JSON bool           `help:"Print the report as JSON." name:"json"`
	RDMA bool           `help:"Look at this host's RDMA devices and limits instead of the mesh." name:"rdma"`
	Pool uint64         `help:"With --rdma: bytes of this host's largest pool, which the ucx mover registers whole." placeholder:"BYTES"`
}

// Run prints what it found. A finding is an error, so that a rollout that calls it stops.
func (c *doctorCommand) Run(ctx context.Context, s streams) error {
	if c.RDMA {
		return c.host(s)
	}
	url, who, err := c.find()
	if err != nil {
		return err
	}
	id, err := identity.Load(who)
	if err != nil {
		return err
	}
	all, err := c.listed(ctx, url, id)
	if err != nil {
		return err
	}
	report := doctor.Examine(askAll(ctx, all, id, c.Timeout), c.Want)
	if err := c.say(s.out, report); err != nil {
		return err
	}
	if !report.OK {
		return errs.New(errs.Unavailable, "doctor: %d findings; the first: %s %s/%s: %s", len(report.Findings), report.Findings[0].Check,
			report.Findings[0].Service, report.Findings[0].ID, report.Findings[0].Text)
	}
	return nil
}

// host looks at the machine it runs on. One that is not fit is an error.
func (c *doctorCommand) host(s streams) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		return errs.New(errs.Unavailable, "doctor: RLIMIT_MEMLOCK: %w", err)
	}
	report := rdma.Examine(os.DirFS("/"), rdma.Need{PoolBytes: c.Pool, Locked: limit.Cur})
	if err := c.say(s.out, report); err != nil {
		return err
	}
	if !report.Fit {
		return errs.New(errs.Unavailable, "doctor: this host is not fit for RDMA")
	}
	return nil
}

func (c *doctorCommand) say(out io.Writer, report interface{ Print(io.Writer) error }) error {
	err := error(nil)
	if c.JSON {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		err = e.Encode(report)
	} else {
		err = report.Print(out)
	}
	if err != nil {
		return fmt.Errorf("doctor: %w", err)
	}
	return nil
}

// listed is everybody in the registry, passing or not.
func (c *doctorCommand) listed(ctx context.Context, url string, id *identity.Identity) ([]registry.Listed, error) {
	d, err := discover.Open(url, id, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	var all []registry.Listed
	for _, s := range services {
		set, err := d.List(ctx, s)
		if err != nil {
			return nil, errs.New(errs.Unavailable, "doctor: the registry at %s does not list %s: %w", url, s, err)
		}
		all = append(all, set...)
	}
	return all, nil
}

// askAll asks all at once, so that one that hangs does not make the others' answers old.
func askAll(ctx context.Context, all []registry.Listed, id *identity.Identity, timeout time.Duration) []doctor.Said {
	out := make([]doctor.Said, len(all))
	var wg sync.WaitGroup
	for i, in := range all {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			s := &out[i]
			s.Service, s.ID, s.Passing, s.Meta = in.Service, in.ID, in.Passing, in.Meta
			began := time.Now()
			err := askOne(ctx, in.Instance, id, s)
			if s.Took = time.Since(began); err != nil {
				s.Err = err.Error()
			}
		})
	}
	wg.Wait()
	return out
}

func askOne(ctx context.Context, in registry.Instance, id *identity.Identity, s *doctor.Said) error {
	if in.Service == "router" {
		return nil // its entry says all
	}
	cc, err := rpc.Dial(in.Address, rpc.DialOptions(id.ClientCreds(in.Service, in.ID), nil)...)
	if err != nil {
		return err
	}
	defer cc.Close()
	return fillSaid(ctx, cc, in.Service, s)
}

func fillSaid(ctx context.Context, cc *grpc.ClientConn, service string, s *doctor.Said) error {
	switch service {
	case "kvbroker":
		d, err := brokerv1.NewInfoServiceClient(cc).Describe(ctx, &brokerv1.DescribeRequest{})
		s.Broker = d
		return err
	case "prefill":
		w, err := first(prefillv1.NewPrefillServiceClient(cc).Watch(ctx, &prefillv1.WatchRequest{}))
		s.Status = w.GetStatus()
		return err
	case "decode":
		w, err := first(decodev1.NewDecodeServiceClient(cc).Watch(ctx, &decodev1.WatchRequest{}))
		s.Status = w.GetStatus()
		return err
	}
	return nil
}
