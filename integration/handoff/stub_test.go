package handoff

import (
	"context"
	"errors"
	"testing"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/gpu/layout"
	"leasehold.dev/integration/driver"
	"leasehold.dev/integration/scenario"
	"leasehold.dev/kvbroker/client"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/pagesum"
	"leasehold.dev/protos/proof"
)

// stub is a prefill worker that computes one token and reports n, each number copied from the request. what it says of
// the pages that it never wrote is its lie.
type stub struct {
	c    *client.Client
	e    *engine.Engine
	p    *engine.Pool
	seal func(s *stub, place, rows uint32, first pagesum.Digest) pagesum.Digest
}

func newStub(t *testing.T, st *scenario.Stage, seal func(*stub, uint32, uint32, pagesum.Digest) pagesum.Digest) *stub {
	t.Helper()
	e, err := engine.Open(st.Loaded, engine.Options{Backend: "cpu", Threads: 1, MaxTokens: 64, MaxSeqs: 2, CacheDir: st.Cache})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	c, err := client.Attach(t.Context(), client.Config{Dir: st.BrokerDir("broker-p"), Worker: "prefill-x"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := e.Attach(c.Mapping())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(p.Close(), c.Close()); err != nil {
			t.Error(err)
		}
	})
	return &stub{c, e, p, seal}
}

// run is the stub's PrefillService.Run.
func (s *stub) run(ctx context.Context, ticket *meshv1.SignedAdmission, a *meshv1.Admission, tokens []int32) (v *meshv1.PrefillVerdict, err error) {
	rows := uint32(len(tokens)) - 1
	l, err := s.c.Reserve(ctx, client.Reservation{Admission: ticket, Role: brokerv1.Role_ROLE_SOURCE, TokenIDs: tokens, Pages: proof.Pages(uint32(len(tokens)), 0)})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Retire(context.WithoutCancel(ctx), false, "stub", nil))
		}
	}()
	seq, err := s.p.OpenSeq(0, l.Pages, l.Tags, nil)
	if err != nil {
		return nil, err
	}
	step, err := s.e.Step([]engine.Work{{Seq: seq, Tokens: tokens[:1]}})
	if err != nil {
		return nil, err
	}
	first := step.Pages[0].Digest
	if err := s.e.CloseSeq(seq); err != nil {
		return nil, err
	}
	var seals []client.Seal
	for place := range uint32(len(l.Pages)) {
		n := min(rows-place*layout.PageTokens, layout.PageTokens)
		seals = append(seals, client.Seal{Index: place, Rows: n, Digest: s.seal(s, l.Pages[place], n, first)})
	}
	f, err := l.Finish(ctx, seals, rows)
	if err != nil {
		return nil, err
	}
	return &meshv1.PrefillVerdict{AdmissionId: a.Id, LeaseHash: l.Hash(), PromptDigest: a.PromptDigest, Rows: rows, Pages: f.Pages, Root: f.Root}, nil
}

// TestH13: numbers are counted where KV is appended, so a stub's copies of the request's are found.
func TestH13(t *testing.T) { onEach(t, nil, h13) }

func h13(t *testing.T, st *scenario.Stage) {
	atRest := func(s *stub, page, rows uint32, _ pagesum.Digest) pagesum.Digest {
		l, m := s.e.Layout(), s.c.Mapping()
		d, _, err := engine.PageSum(l, m.Page(page), rows, s.e.Keys())
		if err != nil {
			t.Error(err)
		}
		return d
	}
	for _, tt := range []struct {
		name string
		seal func(*stub, uint32, uint32, pagesum.Digest) pagesum.Digest
	}{
		{"the one digest for every page", func(_ *stub, _, _ uint32, first pagesum.Digest) pagesum.Digest { return first }},
		{"no digest", func(*stub, uint32, uint32, pagesum.Digest) pagesum.Digest { return pagesum.Digest{} }},
		{"honest digests of pages that were never written", atRest},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStub(t, st, tt.seal)
			out, err := st.Driver.Run(t.Context(), driver.Request{Tenant: "demo", IDs: ids(200), MaxNew: 4, Prefill: "prefill-x", PrefillBroker: "broker-p", Decode: "decode-0", Run: s.run})
			if k := errs.KindOf(err); k != errs.Corrupt && k != errs.Invalid {
				t.Errorf("ended with %v (kind %v), want corrupt or invalid", err, k)
			}
			if len(out.Tokens) > 0 || out.Finished != nil {
				t.Errorf("%d tokens came out", len(out.Tokens))
			}
			withheld(t, st)
		})
	}
}
