package cli

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc"

	"leasehold.dev/mesh/identity"
	"leasehold.dev/mesh/registry"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	prefillv1 "leasehold.dev/protos/gen/leasehold/prefill/v1"
)

type psCommand struct {
	Dir      string        `help:"Folder of the mesh that up runs." placeholder:"DIR"`
	Registry string        `help:"Registry to ask, instead of a mesh of this host." placeholder:"URL"`
	Identity string        `help:"Folder of the certificate to show." placeholder:"DIR"`
	Timeout  time.Duration `help:"How long one process may take to answer." default:"3s"`
}

// Run asks the registry who is there, and each of them what it holds.
func (c *psCommand) Run(ctx context.Context, s streams) error {
	if c.Registry == "" {
		dir := c.Dir
		if dir == "" {
			dir = defaultDir()
		}
		st, err := readState(dir)
		if err != nil {
			return err
		}
		c.Registry, c.Identity = st.Registry, st.Identity
	}
	id, err := identity.Load(c.Identity)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	all, err := c.instances(ctx, id)
	if err != nil {
		return err
	}
	v := &view{ctx: ctx, timeout: c.Timeout, id: id}
	for _, in := range all {
		v.ask(in)
	}
	return v.print(s.out)
}

// view is what the processes said.
type view struct {
	ctx     context.Context
	timeout time.Duration
	id      *identity.Identity

	services [][]any
	brokers  []*brokerv1.DescribeResponse
}

func (v *view) ask(in registry.Instance) {
	ctx, cancel := context.WithTimeout(v.ctx, v.timeout)
	defer cancel()
	row := []any{in.Service, in.ID, in.Address, "", "", "", "", ""}
	defer func() { v.services = append(v.services, row) }()
	cc, err := grpc.NewClient("passthrough:///"+in.Address, grpc.WithTransportCredentials(v.id.ClientCreds(in.Service, in.ID)))
	if err != nil {
		row[7] = err
		return
	}
	defer cc.Close()
	switch in.Service {
	case "kvbroker":
		d, err := brokerv1.NewInfoServiceClient(cc).Describe(ctx, &brokerv1.DescribeRequest{})
		if err != nil {
			row[7] = err
			return
		}
		v.brokers = append(v.brokers, d)
		row[4], row[5] = fmt.Sprintf("%d/%d", d.Pool.Pages-d.Pool.Free, d.Pool.Pages), len(d.Leases)
	case "prefill":
		st, err := first(prefillv1.NewPrefillServiceClient(cc).Watch(ctx, &prefillv1.WatchRequest{}))
		worker(row, st.GetStatus(), err)
	case "decode":
		st, err := first(decodev1.NewDecodeServiceClient(cc).Watch(ctx, &decodev1.WatchRequest{}))
		worker(row, st.GetStatus(), err)
	}
}

// first takes a stream's first message.
func first[T any](st grpc.ServerStreamingClient[T], err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	return st.Recv()
}

func worker(row []any, st *meshv1.WorkerStatus, err error) {
	if err != nil {
		row[7] = err
		return
	}
	row[3], row[4], row[5] = st.Broker, fmt.Sprintf("%d/%d", st.PoolPages-st.FreePages, st.PoolPages), st.Sequences
	row[6] = fmt.Sprintf("%d/%d", st.PromisedTokens, st.LimitTokens)
	row[7] = "ready"
	if !st.Ready {
		row[7] = "not ready: " + st.Reason
	}
	if !st.GuardsOn {
		row[7] = fmt.Sprint(row[7], ", GUARDS OFF")
	}
}

func (v *view) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "SERVICE\tID\tADDRESS\tBROKER\tPAGES USED\tRUNNING\tPROMISE/LIMIT\tSTATE")
	for _, r := range v.services {
		fmt.Fprintf(w, "%v\t%v\t%v\t%v\t%v\t%v\t%v\t%v\n", r...)
	}
	fmt.Fprintln(w, "\nBROKER\tINSTANCE\tPAGES\tFREE\tWRITING\tSEALED\tSTAGED\tOWNED\tQUARANTINE")
	for _, d := range v.brokers {
		p := d.Pool
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", d.Identity.Name, short(d.Identity.Instance), p.Pages, p.Free, p.Writing, p.Sealed,
			p.Staged+p.Verifying, p.Owned, p.Quarantine)
	}
	fmt.Fprintln(w, "\nBROKER\tLEASE\tTENANT\tWORKER\tROLE\tSTATE\tPAGES\tROWS\tAGE")
	for _, d := range v.brokers {
		for _, l := range d.Leases {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%v\n", d.Identity.Name, short(l.LeaseHash), l.Tenant, l.Worker, l.Role, l.State, l.Pages, l.Rows,
				time.Duration(l.AgeMs)*time.Millisecond)
		}
	}
	return w.Flush()
}

func short(b []byte) string { return hex.EncodeToString(b[:min(6, len(b))]) }
