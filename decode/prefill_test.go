package decode

import (
	"context"
	"sync"
	"time"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/gpu/runner"
	"leasehold.dev/kvbroker/client"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/proof"
)

// prefiller is a prefill worker as small as it can be: it computes what it is told and says what it is told.
type prefiller struct {
	host *Host
}

// startPrefill runs p0 on the broker that m moves pages from.
func (g *rig) startPrefill(m meshv1.Mover) *prefiller {
	g.t.Helper()
	p := &prefiller{host: g.runHost(g.config(source(m)), "p0")}
	watch(g.t, p.host, p.host.Status, func(s *meshv1.WorkerStatus) bool { return s.Ready })
	return p
}

// run computes the first rows tokens of a prompt, and says that it was all of them. What it says of its pages is true:
// digests are taken from the memory, and only the count of rows is copied from the request.
func (p *prefiller) run(ctx context.Context, req *decodev1.GenerateRequest, rows uint32) error {
	n := uint32(len(req.TokenIds))
	link, err := p.host.Link()
	if err != nil {
		return err
	}
	defer link.Release()
	task, err := link.Admit("acme", rows, time.Time{})
	if err != nil {
		return err
	}
	lease, err := link.Broker.Reserve(ctx, client.Reservation{
		Admission: req.Admission, Role: brokerv1.Role_ROLE_SOURCE, TokenIDs: req.TokenIds, Pages: proof.Pages(n, 0)})
	if err != nil {
		task.Cancel(err)
		return err
	}
	err = task.Start(runner.Sequence{Pages: lease.Pages, Tags: lease.Tags, Tokens: req.TokenIds[:rows], Handler: silent{}})
	if err != nil {
		return err
	}
	<-task.Done()
	if err = task.Err(); err == nil {
		err = p.finish(ctx, lease, n-1)
	}
	if err != nil {
		_ = lease.Retire(ctx, false, err.Error(), nil)
	}
	return err
}

func (p *prefiller) finish(ctx context.Context, lease *client.Lease, rows uint32) error {
	link, err := p.host.Link()
	if err != nil {
		return err
	}
	defer link.Release()
	var seals []client.Seal
	for i, page := range lease.Pages {
		s := client.Seal{Index: uint32(i), Rows: min(rows-uint32(i)*64, 64)}
		e := p.host.Engine()
		if s.Digest, _, err = engine.PageSum(e.Layout(), link.Broker.Mapping().Page(page), s.Rows, e.Keys()); err != nil {
			return err
		}
		seals = append(seals, s)
	}
	_, err = lease.Finish(ctx, seals, rows)
	return err
}

type silent struct{}

func (silent) Step(runner.Outcome) (int32, bool, error) { return 0, false, nil }

// generateSplit answers req with p's help; p computes rows of its tokens.
func (g *rig) generateSplit(req *decodev1.GenerateRequest, p *prefiller, rows uint32) (*reply, error) {
	var prefill sync.WaitGroup
	defer prefill.Wait()
	return g.generate(context.Background(), req, func(m *decodev1.GenerateResponse) {
		if m.GetAdmitted() != nil {
			prefill.Go(func() {
				if err := p.run(context.Background(), req, rows); err != nil {
					g.t.Logf("prefill of %d tokens: %v", len(req.TokenIds), err)
				}
			})
		}
	})
}
