package client

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"

	"leasehold.dev/mesh/boundary"
	"leasehold.dev/mesh/telemetry"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
)

// recorded is a Recorder that keeps the incidents it is told.
func recorded(t *testing.T) (r *boundary.Recorder, incidents *[]string) {
	t.Helper()
	tel, err := telemetry.New(t.Context(), "prefill", "p0", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tel.Close(context.Background()) })
	if r, err = boundary.New(tel.Meter(), time.Now); err != nil {
		t.Fatal(err)
	}
	incidents = &[]string{}
	r.Tell(func(_ boundary.Property, d boundary.Detector, about string) {
		*incidents = append(*incidents, string(d)+" "+about)
	})
	return r, incidents
}

func looked(r *boundary.Recorder) time.Time {
	at, _ := r.Last(boundary.P2, boundary.StaleEpoch, "")
	return at
}

// The first Reserve asks, the next one within a minute does not, and the lease is as it was.
func TestAnOldEpochIsAskedForAndRefused(t *testing.T) {
	dir := runtimeDir(t)
	startBroker(t, dir)
	r, incidents := recorded(t)
	c, err := Attach(t.Context(), Config{Dir: dir, Worker: "d0", Boundary: r})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	expected := looked(r)
	if expected.IsZero() {
		t.Fatal("nobody would notice that it is silent")
	}
	reserve := func() *Lease {
		l, err := c.Reserve(t.Context(), solo(t, 64))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := reserve()
	first := looked(r)
	if !first.After(expected) || len(*incidents) > 0 {
		t.Fatalf("looked at %v, expected since %v, incidents %q", first, expected, *incidents)
	}
	second := reserve()
	if again := looked(r); again != first {
		t.Errorf("asked again within a minute, at %v", again)
	}
	for _, l := range []*Lease{l, second} {
		if err := l.Retire(t.Context(), true, "", nil); err != nil {
			t.Error(err)
		}
	}
}

// sealing is a broker with answers of its own to a Seal of epoch 3, and to one of another.
type sealing struct {
	brokerv1.WorkerServiceClient
	right, old error
}

func (s sealing) Seal(_ context.Context, r *brokerv1.SealRequest, _ ...grpc.CallOption) (*brokerv1.SealResponse, error) {
	if r.Epoch == 3 {
		return &brokerv1.SealResponse{}, errs.ToStatus(s.right)
	}
	return &brokerv1.SealResponse{}, errs.ToStatus(s.old)
}

func TestABrokerThatDoesNotRefuseAnOldEpochIsAnIncident(t *testing.T) {
	for _, tt := range []struct {
		name             string
		right, old       error
		incident, looked bool
	}{
		{"refused", nil, errs.New(errs.Stale, "epoch 3, not 2"), false, true},
		{"taken", nil, nil, true, true},
		{"refused for another reason", nil, errs.New(errs.Invalid, "no pages"), true, true},
		{"away", nil, errs.New(errs.Unavailable, "away"), false, false},
		{"the handle has died", errs.New(errs.Stale, "attach again"), errs.New(errs.Stale, "attach again"), false, false},
	} {
		r, incidents := recorded(t)
		c := &Client{rpc: sealing{right: tt.right, old: tt.old}, boundary: r, info: Info{Broker: "b1"}}
		c.probe(t.Context(), &Lease{ID: []byte("l"), Epoch: 3, c: c})
		if got := len(*incidents) == 1; got != tt.incident || !looked(r).IsZero() != tt.looked {
			t.Errorf("%s: incidents %q, looked %v", tt.name, *incidents, !looked(r).IsZero())
		}
	}
}
