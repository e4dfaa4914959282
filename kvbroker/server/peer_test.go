package server

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc"

	"leasehold.dev/kvbroker/client"
	"leasehold.dev/kvbroker/mover"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/proof"
)

// openAt opens a Pull at n as any broker might.
func openAt(t *testing.T, f *fleet, n *node, change func(*brokerv1.PullOpen), of *request) error {
	t.Helper()
	open := &brokerv1.PullOpen{Admission: of.s, Secret: proof.NewSecret(), FromInstance: proof.NewID(), ToInstance: n.Instance(),
		Rows: of.rows(), Pages: of.moved()}
	change(open)
	return f.Call(n.cfg.Name, func(c grpc.ClientConnInterface) error {
		s, err := mover.Open(t.Context(), c, open)
		if err == nil {
			s.Close()
		}
		return err
	})
}

func TestPullIsRefused(t *testing.T) {
	const m = meshv1.Mover_MOVER_GRPC
	for _, tt := range []struct {
		name   string
		of     func(t *testing.T) *request
		change func(*brokerv1.PullOpen)
		want   errs.Kind
	}{
		{"meant for an old instance", nil, func(o *brokerv1.PullOpen) { o.ToInstance = proof.NewID() }, errs.Stale},
		{"without instance", nil, func(o *brokerv1.PullOpen) { o.ToInstance = nil }, errs.Stale},
		{"with half a secret", nil, func(o *brokerv1.PullOpen) { o.Secret = o.Secret[:16] }, errs.Corrupt},
		{"of one row less", nil, func(o *brokerv1.PullOpen) { o.Rows-- }, errs.Corrupt},
		{"of one page more", nil, func(o *brokerv1.PullOpen) { o.Pages++ }, errs.Corrupt},
		{"without admission", nil, func(o *brokerv1.PullOpen) { o.Admission = nil }, errs.Corrupt},
		{"with a wrong signature", nil, func(o *brokerv1.PullOpen) {
			o.Admission = &meshv1.SignedAdmission{Admission: o.Admission.Admission, Signature: make([]byte, 64)}
		}, errs.Corrupt},
		{"of an admission for another broker", func(t *testing.T) *request {
			return newRequest(t, 100, 4, m, func(a *meshv1.Admission) { a.PrefillBroker = "b9" })
		}, nil, errs.Denied},
		{"of an admission for the local mover", func(t *testing.T) *request {
			return newRequest(t, 100, 4, meshv1.Mover_MOVER_LOCAL, func(a *meshv1.Admission) { a.PrefillBroker = "b0" })
		}, nil, errs.Denied},
		{"of other weights", func(t *testing.T) *request {
			return newRequest(t, 100, 4, m, func(a *meshv1.Admission) { a.ModelRevision = make([]byte, 32) })
		}, nil, errs.Invalid},
		{"after the deadline", func(t *testing.T) *request {
			return newRequest(t, 100, 4, m, func(a *meshv1.Admission) { a.DeadlineUnixMs = time.Now().UnixMilli() - 1 })
		}, nil, errs.Stale},
		{"by a broker that the admission does not name", func(t *testing.T) *request {
			return newRequest(t, 100, 4, m, func(a *meshv1.Admission) { a.DecodeBroker = "b9" })
		}, nil, errs.Denied},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFleet(t)
			n := newNode(t, f, "b0", 8, func(c *Config) {
				c.Caller = func(context.Context) (string, bool) { return "b1", true }
			})
			r := newRequest(t, 100, 4, m)
			if tt.of != nil {
				r = tt.of(t)
			}
			if tt.change == nil {
				tt.change = func(*brokerv1.PullOpen) {}
			}
			wantKind(t, "Open", openAt(t, f, n, tt.change, r), tt.want)
			if got := n.count(t, MetricRefused, "what", "serve"); got != 1 {
				t.Errorf("%d refusals counted, want 1", got)
			}
			n.baseline(t)
		})
	}
}

func TestSecondPullOfAnAdmissionIsRefused(t *testing.T) {
	k := newPair(t, meshv1.Mover_MOVER_GRPC)
	r := newRequest(t, 100, 4, meshv1.Mover_MOVER_GRPC)
	dst := r.decode(t, k.d)
	f := k.b1.cfg.Peers.(*fleet)
	wantKind(t, "a second Open", openAt(t, f, k.b0, func(*brokerv1.PullOpen) {}, r), errs.Invalid)
	src := r.prefill(t, k.p)
	fill(t, k.p, src, r)
	if _, err := bothLooks(t, dst); err != nil {
		t.Errorf("AwaitOwned = %v: the live request was hurt", err)
	}
	retire(t, src, true)
	retire(t, dst, true)
	k.baseline(t)
}

func TestHandshakeIsRefused(t *testing.T) {
	f := newFleet(t)
	n := newNode(t, f, "b0", 8, func(c *Config) {
		c.Caller = func(context.Context) (string, bool) { return "b1", true }
	})
	shake := func(id *brokerv1.BrokerIdentity) error {
		return f.Call("b0", func(c grpc.ClientConnInterface) error {
			_, err := brokerv1.NewPeerServiceClient(c).Handshake(t.Context(), &brokerv1.HandshakeRequest{From: id})
			return errs.FromStatus(err)
		})
	}
	if err := shake(identityOf("b1")); err != nil {
		t.Errorf("Handshake = %v", err)
	}
	wantKind(t, "Handshake under another name", shake(identityOf("b2")), errs.Denied)
	wantKind(t, "empty Handshake", shake(nil), errs.Denied)
	other := identityOf("b1")
	other.LayoutHash = make([]byte, 32)
	err := shake(other)
	wantKind(t, "Handshake with another layout", err, errs.Invalid)
	for _, hash := range [][]byte{other.LayoutHash, n.own.LayoutHash} {
		if err != nil && !contains(err.Error(), inHex(hash)) {
			t.Errorf("%v: does not name layout %x", err, hash)
		}
	}
}

func TestRestartedPeerIsFoundAgain(t *testing.T) {
	k := newPair(t, meshv1.Mover_MOVER_GRPC)
	serveOne := func(p *client.Client) {
		t.Helper()
		r := newRequest(t, 100, 4, meshv1.Mover_MOVER_GRPC)
		dst := r.decode(t, k.d)
		src := r.prefill(t, p)
		fill(t, p, src, r)
		if _, err := bothLooks(t, dst); err != nil {
			t.Fatal(err)
		}
		retire(t, src, true)
		retire(t, dst, true)
	}
	serveOne(k.p)
	r := newRequest(t, 100, 4, meshv1.Mover_MOVER_GRPC)
	dst, src := r.decode(t, k.d), r.prefill(t, k.p)
	k.b0.stopAll()
	within(t, "P's client notices", k.p.Done())
	within(t, "P's lease is revoked", src.Revoked())
	_, err := dst.AwaitOwned(t.Context())
	wantKind(t, "AwaitOwned", err, errs.Unavailable)
	retire(t, dst, false)
	k.b1.baseline(t)

	again := startNode(t, k.b1.cfg.Peers.(*fleet), "b0", 8, k.b0.dir)
	p := again.attach(t, "p0")
	if err := src.Seal(t.Context(), nil); err == nil {
		t.Error("a lease of the old instance still takes seals")
	}
	serveOne(p)
	again.baseline(t)
}

func TestProtobufCannotPull(t *testing.T) {
	f := newFleet(t)
	newNode(t, f, "b0", 8)
	err := f.Call("b0", func(c grpc.ClientConnInterface) error {
		s, err := brokerv1.NewPeerServiceClient(c).Pull(t.Context())
		if err != nil {
			return err
		}
		if err := s.Send(&brokerv1.PullRequest{}); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		_, err = s.Recv()
		return errs.FromStatus(err)
	})
	wantKind(t, "Pull in protobuf", err, errs.Invalid)
}

func TestDescribeShowsNoSecret(t *testing.T) {
	k := newPair(t, meshv1.Mover_MOVER_GRPC)
	r := newRequest(t, 100, 4, meshv1.Mover_MOVER_GRPC)
	dst, src := r.decode(t, k.d), r.prefill(t, k.p)
	var out *brokerv1.DescribeResponse
	err := k.b1.cfg.Peers.Call("b0", func(c grpc.ClientConnInterface) (err error) {
		out, err = brokerv1.NewInfoServiceClient(c).Describe(t.Context(), &brokerv1.DescribeRequest{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if out.Identity.Name != "b0" || out.Pool.Pages != 8 || out.Pool.Writing != 2 || len(out.Leases) != 1 || len(out.Workers) != 1 {
		t.Fatalf("Describe = %v", out)
	}
	l := out.Leases[0]
	if l.Tenant != "t0" || l.Worker != "p0" || l.Role != roleSource || l.State != "writing" || string(l.LeaseHash) != string(src.Hash()) {
		t.Errorf("lease = %v", l)
	}
	if contains(out.String(), string(src.ID)) {
		t.Error("the lease's id is shown")
	}
	retire(t, src, false)
	retire(t, dst, false)
	k.baseline(t)
}
