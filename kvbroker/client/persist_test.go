package client

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	"leasehold.dev/protos/proof"
)

// deaf is the broker behind a way that loses the first so many words of a kind.
type deaf struct {
	brokerv1.WorkerServiceClient
	err            error
	asks, retires  atomic.Int32 // that will be lost
	asked, retired atomic.Int32
	answersAreLost bool // the broker hears them all the same
}

func (d *deaf) Retire(ctx context.Context, r *brokerv1.RetireRequest, o ...grpc.CallOption) (*brokerv1.RetireResponse, error) {
	d.retired.Add(1)
	if d.retires.Add(-1) >= 0 {
		if d.answersAreLost {
			_, _ = d.WorkerServiceClient.Retire(ctx, r, o...)
		}
		return nil, errs.ToStatus(d.err)
	}
	return d.WorkerServiceClient.Retire(ctx, r, o...)
}

func (d *deaf) Reserve(ctx context.Context, r *brokerv1.ReserveRequest, o ...grpc.CallOption) (*brokerv1.ReserveResponse, error) {
	if r.Admission != nil {
		return d.WorkerServiceClient.Reserve(ctx, r, o...)
	}
	d.asked.Add(1)
	if d.asks.Add(-1) >= 0 {
		return nil, errs.ToStatus(d.err)
	}
	return d.WorkerServiceClient.Reserve(ctx, r, o...)
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	late := time.After(10 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

func (c *Client) held() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.leases)
}

func TestRetireIsSaidUntilTheBrokerHasHeardIt(t *testing.T) {
	for name, d := range map[string]*deaf{
		"the way is broken":    {err: errs.New(errs.Unavailable, "test")},
		"the time ran out":     {err: context.DeadlineExceeded},
		"the broker is full":   {err: errs.New(errs.Exhausted, "test")},
		"the answers are lost": {err: errs.New(errs.Unavailable, "test"), answersAreLost: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := runtimeDir(t)
			startBroker(t, dir)
			c := attached(t, dir)
			l, err := c.Reserve(t.Context(), solo(t, 100))
			if err != nil {
				t.Fatal(err)
			}
			d.WorkerServiceClient = c.rpc
			d.retires.Store(3)
			c.rpc = d
			if err := l.Retire(t.Context(), true, "bytes \xff of somebody", nil); err == nil {
				t.Error("Retire = nil, and the broker has not answered")
			}
			eventually(t, "all pages are free, and the lease is forgotten", func() bool { return c.Pool().Free == 4 && c.held() == 0 })
			if n := d.retired.Load(); n != 4 {
				t.Errorf("it was said %d times, want 4", n)
			}
		})
	}
}

func TestWhatTheBrokerRefusesIsNotSaidAgain(t *testing.T) {
	dir := runtimeDir(t)
	startBroker(t, dir)
	c := attached(t, dir)
	d := &deaf{WorkerServiceClient: c.rpc}
	c.rpc = d
	l := c.end(begun(t, c), &brokerv1.ReserveResponse{Lease: proof.NewID(), Epoch: 1})
	if err := l.Retire(t.Context(), true, "", nil); errs.KindOf(err) != errs.NotFound {
		t.Errorf("Retire of an unknown lease = %v, want not found", err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if d.retired.Load() != 1 || c.held() != 0 {
		t.Errorf("said %d times, %d leases kept, want 1 and none", d.retired.Load(), c.held())
	}
}

func TestCloseEndsARetireThatIsNotHeard(t *testing.T) {
	dir := runtimeDir(t)
	startBroker(t, dir)
	c := attached(t, dir)
	l, err := c.Reserve(t.Context(), solo(t, 100))
	if err != nil {
		t.Fatal(err)
	}
	d := &deaf{WorkerServiceClient: c.rpc, err: errs.New(errs.Unavailable, "test")}
	d.retires.Store(1 << 30)
	c.rpc = d
	if err := l.Retire(t.Context(), true, "", nil); errs.KindOf(err) != errs.Unavailable {
		t.Errorf("Retire = %v, want unavailable", err)
	}
	if c.held() != 1 {
		t.Errorf("%d leases are kept before the broker has heard, want 1", c.held())
	}
	if err := c.Close(); err != nil { // goleak would see what it leaves
		t.Fatal(err)
	}
	if err := l.Retire(t.Context(), true, "", nil); err == nil {
		t.Error("Retire at a closed handle = nil")
	}
}

func TestUndoIsSaidUntilTheBrokerHasHeardIt(t *testing.T) {
	dir := runtimeDir(t)
	startBroker(t, dir)
	c := attached(t, dir)
	r := solo(t, 100)
	req := &brokerv1.ReserveRequest{RequestId: proof.NewID(), Attach: c.token, Admission: r.Admission, Role: r.Role, TokenIds: r.TokenIDs, Pages: r.Pages}
	if _, err := c.rpc.Reserve(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	d := &deaf{WorkerServiceClient: c.rpc, err: errs.New(errs.Unavailable, "test")}
	d.asks.Store(2)
	d.retires.Store(2)
	c.rpc = d
	c.undo(req)
	eventually(t, "all pages are free", func() bool { return c.Pool().Free == 4 })
	if a, r := d.asked.Load(), d.retired.Load(); a != 5 || r != 3 {
		t.Errorf("asked %d times and retired %d times, want 5 and 3", a, r)
	}
}

func TestPausesGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Client{done: make(chan struct{})}
		began, at := time.Now(), []time.Duration(nil)
		c.persist(func(context.Context) error {
			if at = append(at, time.Since(began)); len(at) < 10 {
				return errs.ToStatus(errs.New(errs.Unavailable, "test"))
			}
			return nil
		})
		c.wg.Wait()
		if at[0] != 0 || at[1] != firstPause || at[2] != 3*firstPause || at[9]-at[8] != lastPause {
			t.Errorf("said at %v", at)
		}
	})
}
