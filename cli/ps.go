package cli

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"leasehold.dev/mesh/identity"
	"leasehold.dev/mesh/registry"
	"leasehold.dev/mesh/rpc"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	prefillv1 "leasehold.dev/protos/gen/leasehold/prefill/v1"
)

type psCommand struct {
	Dir      string        `help:"Folder of the mesh that up runs." placeholder:"DIR"`
	Registry string        `help:"Registry to ask, instead of a mesh of this host." placeholder:"URL"`
	Identity string        `help:"Folder of the certificate to show; goes with --registry." placeholder:"DIR"`
	Timeout  time.Duration `help:"How long one process may take to answer." default:"3s"`
}

// Run asks the registry who is there, and each of them what it holds.
func (c *psCommand) Run(ctx context.Context, s streams) error {
	url, who, err := c.find()
	if err != nil {
		return err
	}
	id, err := identity.Load(who)
	if err != nil {
		return err
	}
	all, err := instances(ctx, url, id)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return errs.New(errs.Unavailable, "ps: %s lists no passing instance of %d services, or does not answer", url, len(services))
	}
	v := &view{timeout: c.Timeout, id: id}
	for _, in := range all {
		v.services = append(v.services, v.ask(ctx, in))
	}
	return v.print(s.out)
}

func (c *psCommand) find() (registry, identity string, err error) {
	if (c.Registry == "") != (c.Identity == "") {
		return "", "", errs.New(errs.Invalid, "--registry and --identity go together")
	}
	if c.Registry != "" {
		return c.Registry, c.Identity, nil
	}
	st, err := readState(orDefault(c.Dir))
	return st.Registry, st.Identity, err
}

// view is what the processes said.
type view struct {
	timeout time.Duration
	id      *identity.Identity

	services []row
	brokers  []*brokerv1.DescribeResponse
}

// row is one process.
type row struct {
	registry.Instance
	broker, pages, running, promise string // empty: it has none, or did not say
	state                           string
}

// ask is one process's row. A process that does not answer has the reason as its state.
func (v *view) ask(ctx context.Context, in registry.Instance) row {
	ctx, cancel := context.WithTimeout(ctx, v.timeout)
	defer cancel()
	r := row{Instance: in, state: "passing"}
	cc, err := rpc.Dial(in.Address, rpc.DialOptions(v.id.ClientCreds(in.Service, in.ID), nil)...)
	if err == nil {
		defer cc.Close()
		err = v.fill(ctx, cc, &r)
	}
	if err != nil {
		r.state = fmt.Sprintf("no answer: %v", err)
	}
	return r
}

func (v *view) fill(ctx context.Context, cc *grpc.ClientConn, r *row) error {
	switch r.Service {
	case "kvbroker":
		d, err := brokerv1.NewInfoServiceClient(cc).Describe(ctx, &brokerv1.DescribeRequest{})
		if err != nil {
			return err
		}
		v.brokers = append(v.brokers, d)
		r.pages, r.running = used(d.GetPool().GetFree(), d.GetPool().GetPages()), fmt.Sprint(len(d.GetLeases()))
	case "prefill":
		return r.worker(first(prefillv1.NewPrefillServiceClient(cc).Watch(ctx, &prefillv1.WatchRequest{})))
	case "decode":
		return r.worker(first(decodev1.NewDecodeServiceClient(cc).Watch(ctx, &decodev1.WatchRequest{})))
	}
	return nil
}

// first takes a stream's first message.
func first[T any](st grpc.ServerStreamingClient[T], err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	return st.Recv()
}

func (r *row) worker(said interface{ GetStatus() *meshv1.WorkerStatus }, err error) error {
	if err != nil {
		return err
	}
	st := said.GetStatus()
	r.broker, r.pages, r.running = st.GetBroker(), used(st.GetFreePages(), st.GetPoolPages()), fmt.Sprint(st.GetSequences())
	r.promise = fmt.Sprintf("%d/%d", st.GetPromisedTokens(), st.GetLimitTokens())
	r.state = "ready"
	if !st.GetReady() {
		r.state = "not ready: " + st.GetReason()
	}
	if !st.GetGuardsOn() {
		r.state += ", GUARDS OFF"
	}
	return nil
}

func used(free, pages uint32) string { return fmt.Sprintf("%d/%d", pages-free, pages) }
