package server

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"leasehold.dev/kvbroker/client"
	"leasehold.dev/kvbroker/mover"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

func threeLanes(c *Config) { c.PullLanes = 3 }

func (n *node) openLanes() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.lanes)
}

func TestPagesArriveVerifiedOverLanes(t *testing.T) {
	const m = meshv1.Mover_MOVER_GRPC
	for _, n := range []uint32{2, 66, 130, 193, 450} { // 1, 2, 3, 3 and 8 pages
		t.Run(fmt.Sprintf("%d tokens", n), func(t *testing.T) {
			k := newPair(t, m, threeLanes)
			r := newRequest(t, n, 20, m)
			dst := r.decode(t, k.d)
			if got, want := k.b0.openLanes(), min(1, int(r.moved())-1); got != want {
				t.Errorf("%d Pulls with lanes for %d pages, want %d", got, r.moved(), want)
			}
			src := r.prefill(t, k.p)
			fin := fill(t, k.p, src, r)
			o, err := dst.AwaitOwned(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			checkOwned(t, k, r, o, fin)
			if err := dst.AwaitSettled(t.Context()); err != nil {
				t.Errorf("AwaitSettled = %v", err)
			}
			retire(t, src, true)
			retire(t, dst, true)
			k.baseline(t)
			if got := k.b0.openLanes(); got != 0 {
				t.Errorf("%d Pulls with lanes are left", got)
			}
		})
	}
}

// However a Pull with lanes ends, both brokers are at their baseline: no lane holds a page.
func TestLanesEndWithTheirPull(t *testing.T) {
	const m = meshv1.Mover_MOVER_GRPC
	for _, tt := range []struct {
		name string
		end  func(t *testing.T, k *pair, src *client.Lease)
	}{
		{"P gives up", func(t *testing.T, _ *pair, src *client.Lease) { retire(t, src, false) }},
		{"a lane's connection breaks", func(_ *testing.T, k *pair, _ *client.Lease) { k.fleet.conns[laneOf("b0", 2)].Close() }},
		{"the Pull's connection breaks", func(_ *testing.T, k *pair, _ *client.Lease) { k.fleet.conns["b0"].Close() }},
		{"P's broker is gone", func(_ *testing.T, k *pair, _ *client.Lease) { k.b0.peers.Stop() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := newPair(t, m, threeLanes)
			r := newRequest(t, 450, 4, m)
			dst := r.decode(t, k.d)
			src := r.prefill(t, k.p)
			for place := range uint32(4) {
				if err := src.Seal(t.Context(), []client.Seal{compute(t, k.p, src, r.ids, place, 64)}); err != nil {
					t.Fatal(err)
				}
			}
			tt.end(t, k, src)
			_, err := dst.AwaitOwned(t.Context())
			wantKind(t, "AwaitOwned", err, errs.Unavailable)
			_ = src.Retire(t.Context(), false, "", nil) // it may have ended before
			retire(t, dst, false)
			k.baseline(t)
			eventually(t, "no Pull with lanes", func() bool { return k.b0.openLanes() == 0 })
		})
	}
}

func TestLaneIsRefused(t *testing.T) {
	const m = meshv1.Mover_MOVER_GRPC
	k := newPair(t, m, threeLanes, func(c *Config) {
		c.Caller = func(ctx context.Context) (string, bool) {
			if ctx.Value(callerKey{}) != nil {
				return "b9", true
			}
			return "b1", true
		}
	})
	r := newRequest(t, 450, 4, m)
	dst := r.decode(t, k.d)
	var token laneToken
	k.b0.mu.Lock()
	for token = range k.b0.lanes {
	}
	k.b0.mu.Unlock()
	wrong := token
	wrong[31] ^= 1
	for _, tt := range []struct {
		name string
		req  *brokerv1.LaneRequest
		opts []grpc.CallOption
		want errs.Kind
	}{
		{"with a wrong token", &brokerv1.LaneRequest{LaneToken: wrong[:], Lane: 1}, nil, errs.Unavailable},
		{"without a token", &brokerv1.LaneRequest{Lane: 1}, nil, errs.Invalid},
		{"that is the Pull's own", &brokerv1.LaneRequest{LaneToken: token[:]}, nil, errs.Invalid},
		{"that is not there", &brokerv1.LaneRequest{LaneToken: token[:], Lane: 3}, nil, errs.Invalid},
		{"in another codec", &brokerv1.LaneRequest{LaneToken: token[:], Lane: 1}, []grpc.CallOption{}, errs.Invalid},
	} {
		if tt.opts == nil {
			tt.opts = []grpc.CallOption{grpc.CallContentSubtype(mover.Subtype)}
		}
		err := k.fleet.Call("b0", func(c grpc.ClientConnInterface) error {
			s, err := brokerv1.NewPeerServiceClient(c).Lane(t.Context(), tt.req, tt.opts...)
			if err == nil {
				_, err = s.Recv()
			}
			return errs.FromStatus(err)
		})
		wantKind(t, "a lane "+tt.name, err, tt.want)
	}
	err := k.b0.serveLane(otherCaller{ctx: t.Context()}, &brokerv1.LaneRequest{LaneToken: token[:], Lane: 1})
	wantKind(t, "a lane by another broker", err, errs.Denied)
	src := r.prefill(t, k.p)
	fill(t, k.p, src, r)
	if _, err := dst.AwaitOwned(t.Context()); err != nil {
		t.Errorf("the Pull itself was harmed: %v", err)
	}
}

type callerKey struct{}

// otherCaller is a lane's stream of a broker that the admission does not name.
type otherCaller struct {
	grpc.ServerStreamingServer[brokerv1.LaneResponse]
	ctx context.Context
}

func (s otherCaller) Context() context.Context {
	ctx := metadata.NewIncomingContext(s.ctx, metadata.Pairs("content-type", "application/grpc+"+mover.Subtype))
	return context.WithValue(ctx, callerKey{}, true)
}
