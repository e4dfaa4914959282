package server

import (
	"bytes"
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

// follow is a real stream; next gives its records one by one, skipping beats.
type follower struct {
	t      *testing.T
	recv   func() (*brokerv1.FollowResponse, error)
	node   *node
	waits  []*brokerv1.LeaseRecord
	closed context.CancelFunc
}

func follow(t *testing.T, f *fleet, n *node, req *brokerv1.FollowRequest) *follower {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	s, err := brokerv1.NewRecordServiceClient(f.conns[n.cfg.Name]).Follow(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	return &follower{t: t, recv: s.Recv, node: n, closed: cancel}
}

func (w *follower) next() *brokerv1.LeaseRecord {
	w.t.Helper()
	for len(w.waits) == 0 {
		m, err := w.recv()
		if err != nil {
			w.t.Fatal(err)
		}
		if !bytes.Equal(m.Instance, w.node.Instance()) {
			w.t.Errorf("instance %x, want %x", m.Instance, w.node.Instance())
		}
		w.waits = m.Records
	}
	r := w.waits[0]
	w.waits = w.waits[1:]
	return r
}

// sourceOf is the broker of P's lease.
func sourceOf(k *pair, m meshv1.Mover) *node {
	if m == meshv1.Mover_MOVER_LOCAL {
		return k.b1
	}
	return k.b0
}

func TestBothBrokersRecordTheirHalf(t *testing.T) {
	for _, m := range movers {
		t.Run(m.String(), func(t *testing.T) {
			k := newPair(t, m)
			atP, atD := follow(t, k.fleet, sourceOf(k, m), &brokerv1.FollowRequest{}), follow(t, k.fleet, k.b1, &brokerv1.FollowRequest{})
			r := newRequest(t, 130, 20, m)
			dst := r.decode(t, k.d)
			src := r.prefill(t, k.p)
			fin := fill(t, k.p, src, r)
			o, err := bothLooks(t, dst)
			if err != nil {
				t.Fatal(err)
			}
			p := atP.next()
			var d *brokerv1.LeaseRecord
			if m == meshv1.Mover_MOVER_LOCAL { // one broker has both halves
				if d = atP.next(); p.Role == brokerv1.Role_ROLE_DESTINATION {
					p, d = d, p
				}
			} else {
				d = atD.next()
			}
			if p.Role != brokerv1.Role_ROLE_SOURCE || d.Role != brokerv1.Role_ROLE_DESTINATION || p.Code != 0 || d.Code != 0 {
				t.Fatalf("halves %v, code %d and %v, code %d", p.Role, p.Code, d.Role, d.Code)
			}
			c := o.Completion()
			for what, pair := range map[string][2][]byte{
				"admission at P": {p.AdmissionId, r.a.Id}, "admission at D": {d.AdmissionId, r.a.Id},
				"root at P": {p.Root, fin.Root}, "root at D": {d.Root, fin.Root},
				"prompt at P": {p.PromptDigest, r.a.PromptDigest}, "prompt at D": {d.PromptDigest, r.a.PromptDigest},
				"lease at P": {p.LeaseHash, src.Hash()}, "lease at D": {d.LeaseHash, dst.Hash()}, "source lease at D": {d.SourceLeaseHash, src.Hash()},
				"source instance": {d.SourceInstance, c.Instance}, "layout": {p.LayoutHash, d.LayoutHash}, "weights": {p.ModelRevision, revision[:]},
			} {
				if len(pair[0]) == 0 || !bytes.Equal(pair[0], pair[1]) {
					t.Errorf("%s is %x, want %x", what, pair[0], pair[1])
				}
			}
			for what, pair := range map[string][2]uint64{
				"rows at P": {uint64(p.Rows), 129}, "rows at D": {uint64(d.Rows), 129}, "pages at P": {uint64(p.Pages), 3}, "pages at D": {uint64(d.Pages), 3},
				"reserved at D": {uint64(d.Reserved), uint64(r.life())}, "epoch at P": {p.Epoch, src.Epoch}, "epoch of P at D": {d.SourceEpoch, src.Epoch},
			} {
				if pair[0] != pair[1] {
					t.Errorf("%s is %d, want %d", what, pair[0], pair[1])
				}
			}
			if p.Tenant != "t0" || d.Tenant != "t0" || p.Worker != r.a.Prefill || d.Worker != r.a.Decode || p.Mover != m || d.Mover != m {
				t.Errorf("tenants %s and %s, workers %s and %s, movers %v and %v", p.Tenant, d.Tenant, p.Worker, d.Worker, p.Mover, d.Mover)
			}
			retire(t, src, true)
			retire(t, dst, true)
			k.baseline(t)
		})
	}
}

// The incident: P refuses before it has a lease. That is on record, with its code, at both brokers.
func TestARefusalIsOnRecord(t *testing.T) {
	for _, m := range movers {
		t.Run(m.String(), func(t *testing.T) {
			k := newPair(t, m)
			atP, atD := follow(t, k.fleet, sourceOf(k, m), &brokerv1.FollowRequest{}), follow(t, k.fleet, k.b1, &brokerv1.FollowRequest{})
			r := newRequest(t, 100, 4, m)
			dst := r.decode(t, k.d)
			if err := k.p.Refuse(t.Context(), r.s, errs.New(errs.Limit, "100 tokens, P holds 64")); err != nil {
				t.Fatal(err)
			}
			if _, err := dst.AwaitOwned(t.Context()); errs.KindOf(err) != errs.Limit {
				t.Fatalf("AwaitOwned = %v, want P's limit", err)
			}
			halves := map[brokerv1.Role]*brokerv1.LeaseRecord{}
			if m == meshv1.Mover_MOVER_LOCAL {
				for range 2 {
					one := atP.next()
					halves[one.Role] = one
				}
			} else {
				p, d := atP.next(), atD.next()
				halves[p.Role], halves[d.Role] = p, d
			}
			p, d := halves[brokerv1.Role_ROLE_SOURCE], halves[brokerv1.Role_ROLE_DESTINATION]
			if p.GetCode() != uint32(codes.OutOfRange) || len(p.GetLeaseHash()) != 0 || len(p.GetRoot()) != 0 || p.GetRows() != 0 {
				t.Errorf("P's half is %v, want a refusal without a lease", p)
			}
			if d.GetCode() != uint32(codes.OutOfRange) || len(d.GetRoot()) != 0 || !bytes.Equal(d.GetLeaseHash(), dst.Hash()) {
				t.Errorf("D's half is %v, want P's refusal and D's lease", d)
			}
			retire(t, dst, false)
			k.baseline(t)
		})
	}
}

func TestASoloLeaseIsOnRecord(t *testing.T) {
	f := newFleet(t)
	n := newNode(t, f, "b1", 8)
	c := n.attach(t, "d0")
	r := newRequest(t, 70, 10, meshv1.Mover_MOVER_NONE)
	l, err := c.Reserve(t.Context(), r.solo())
	if err != nil {
		t.Fatal(err)
	}
	got := follow(t, f, n, &brokerv1.FollowRequest{}).next()
	if got.Role != brokerv1.Role_ROLE_SOLO || got.Code != 0 || got.Seq != 1 || got.Reserved != 2 || got.Worker != "d0" || got.Tenant != "t0" ||
		!bytes.Equal(got.LeaseHash, l.Hash()) || !bytes.Equal(got.PromptDigest, r.a.PromptDigest) {
		t.Errorf("recorded %v", got)
	}
	retire(t, l, true)
	n.baseline(t)
}

func TestFollowStartsWhereTheCallerIs(t *testing.T) {
	f := newFleet(t)
	n := newNode(t, f, "b1", 8)
	c := n.attach(t, "d0")
	for range 3 {
		l, err := c.Reserve(t.Context(), newRequest(t, 5, 5, none).solo())
		if err != nil {
			t.Fatal(err)
		}
		retire(t, l, true)
	}
	for _, tt := range []struct {
		why  string
		req  *brokerv1.FollowRequest
		want uint64
	}{
		{"from the beginning", &brokerv1.FollowRequest{}, 1},
		{"after the second", &brokerv1.FollowRequest{Instance: n.Instance(), After: 2}, 3},
		{"after a number of another instance", &brokerv1.FollowRequest{Instance: make([]byte, 16), After: 99}, 1},
	} {
		if got := follow(t, f, n, tt.req).next(); got.Seq != tt.want {
			t.Errorf("%s: starts at %d, want %d", tt.why, got.Seq, tt.want)
		}
	}
	w := follow(t, f, n, &brokerv1.FollowRequest{Instance: n.Instance(), After: 4})
	if _, err := w.recv(); status.Code(err) != codes.Aborted {
		t.Errorf("after a number that was never given: %v, want aborted", err)
	}
	w = follow(t, f, n, &brokerv1.FollowRequest{Instance: n.Instance(), After: 3})
	for range 2 { // at once, and the beat a second later
		if m, err := w.recv(); err != nil || m.Head != 3 || len(m.Records) != 0 {
			t.Errorf("a beat is %v, %v; want head 3", m, err)
		}
	}
	n.baseline(t)
}
