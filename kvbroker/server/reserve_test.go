package server

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"leasehold.dev/kvbroker/client"
	"leasehold.dev/kvbroker/lease"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/proof"
)

const none = meshv1.Mover_MOVER_NONE

func (r *request) solo() client.Reservation {
	return client.Reservation{Admission: r.s, Role: roleSolo, TokenIDs: r.ids, Pages: r.life()}
}

func TestReserveIsRefused(t *testing.T) {
	const m = meshv1.Mover_MOVER_GRPC
	edit := func(m meshv1.Mover, f func(*meshv1.Admission)) func(t *testing.T) *request {
		return func(t *testing.T) *request { return newRequest(t, 100, 29, m, f) }
	}
	for _, tt := range []struct {
		name   string
		of     func(t *testing.T) *request
		change func(*client.Reservation)
		want   errs.Kind
	}{
		{"a forged signature", nil, func(r *client.Reservation) {
			r.Admission = &meshv1.SignedAdmission{Admission: r.Admission.Admission, Signature: make([]byte, 64)}
		}, errs.Corrupt},
		{"other token ids", nil, func(r *client.Reservation) { r.TokenIDs[3]++ }, errs.Corrupt},
		{"one token id less", nil, func(r *client.Reservation) { r.TokenIDs = r.TokenIDs[1:] }, errs.Corrupt},
		{"a digest that is not the ids'", edit(none, func(a *meshv1.Admission) { a.PromptDigest = make([]byte, 32) }), nil, errs.Corrupt},
		{"one page more than the broker derives", nil, func(r *client.Reservation) { r.Pages++ }, errs.Invalid},
		{"one page less", nil, func(r *client.Reservation) { r.Pages-- }, errs.Invalid},
		{"no role", nil, func(r *client.Reservation) { r.Role = 0 }, errs.Invalid},
		{"solo for a split admission", edit(m, func(*meshv1.Admission) {}), nil, errs.Invalid},
		{"a destination for an unsplit admission", nil, func(r *client.Reservation) { r.Role = roleDest }, errs.Invalid},
		{"a source for an unsplit admission", nil, func(r *client.Reservation) { r.Role = roleSource }, errs.Denied},
		{"a destination from a prefix", edit(m, func(*meshv1.Admission) {}), func(r *client.Reservation) { r.Role, r.From = roleDest, 64 }, errs.Invalid},
		{"another decode worker", edit(none, func(a *meshv1.Admission) { a.Decode = "d1" }), nil, errs.Denied},
		{"another decode broker", edit(none, func(a *meshv1.Admission) { a.DecodeBroker = "b0" }), nil, errs.Denied},
		{"local with a prefill broker elsewhere", edit(meshv1.Mover_MOVER_LOCAL, func(a *meshv1.Admission) { a.PrefillBroker = "b0" }),
			func(r *client.Reservation) { r.Role = roleDest }, errs.Invalid},
		{"other weights", edit(none, func(a *meshv1.Admission) { a.ModelRevision = make([]byte, 32) }), nil, errs.Invalid},
		{"after the deadline", edit(none, func(a *meshv1.Admission) { a.DeadlineUnixMs = time.Now().UnixMilli() - 5 }), nil, errs.Stale},
		{"more pages than the pool has", edit(none, func(a *meshv1.Admission) { a.MaxNewTokens = 9*64 - 100 }), func(r *client.Reservation) { r.Pages = 9 }, errs.Limit},
		{"more tokens than can be counted", edit(none, func(a *meshv1.Admission) { a.MaxNewTokens = 1<<32 - 1 }), func(r *client.Reservation) { r.Pages = 1 }, errs.Limit},
		{"more than the tenant's quota", edit(none, func(a *meshv1.Admission) { a.MaxNewTokens = 7*64 - 100 }), func(r *client.Reservation) { r.Pages = 7 }, errs.Limit},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFleet(t)
			n := newNode(t, f, "b1", 8, func(c *Config) { c.Quota = 6 })
			d := n.attach(t, "d0")
			r := newRequest(t, 100, 29, none)
			if tt.of != nil {
				r = tt.of(t)
			}
			res := r.solo()
			if tt.change != nil {
				tt.change(&res)
			}
			_, err := d.Reserve(t.Context(), res)
			wantKind(t, "Reserve", err, tt.want)
			n.baseline(t)
		})
	}
}

func TestFullPoolIsExhaustedUntilALeaseEnds(t *testing.T) {
	f := newFleet(t)
	n := newNode(t, f, "b1", 4)
	d := n.attach(t, "d0")
	first, err := d.Reserve(t.Context(), newRequest(t, 100, 93, none).solo())
	if err != nil || len(first.Pages) != 3 {
		t.Fatalf("Reserve = %d pages, %v, want 3", len(first.Pages), err)
	}
	eventually(t, "Watch says 1 free", func() bool { return d.Pool() == client.PoolState{Pages: 4, Free: 1} })
	for i, p := range first.Pages {
		if d.Mapping().LoadTag(p) != first.Tags[i] || first.Tags[i].Slot() == 0 || first.Tags[i].Sealed() {
			t.Errorf("page %d has tag %v, granted %v", i, d.Mapping().LoadTag(p), first.Tags[i])
		}
		d.Mapping().Page(p)[0] = 7
	}
	second := newRequest(t, 100, 29, none)
	_, err = d.Reserve(t.Context(), second.solo())
	wantKind(t, "Reserve in a full pool", err, errs.Exhausted)
	retire(t, first, true)
	eventually(t, "Watch says 4 free", func() bool { return d.Pool().Free == 4 })
	l, err := d.Reserve(t.Context(), second.solo())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range l.Pages {
		if !isZero(d.Mapping().Page(p)) {
			t.Errorf("page %d was granted with what another lease wrote", p)
		}
	}
	retire(t, l, true)
	n.baseline(t)
}

// raw is the worker socket without the client's manners.
func (n *node) raw(t *testing.T, worker string) (brokerv1.WorkerServiceClient, []byte) {
	t.Helper()
	n.attach(t, worker)
	n.mu.Lock()
	defer n.mu.Unlock()
	for token, h := range n.handles {
		if h.worker == worker {
			return n.dial(t), token[:]
		}
	}
	t.Fatal("no handle")
	return nil, nil
}

func TestRetriedReserveGetsTheSameAnswer(t *testing.T) {
	f := newFleet(t)
	n := newNode(t, f, "b1", 8)
	w, token := n.raw(t, "d0")
	r := newRequest(t, 100, 29, none)
	req := &brokerv1.ReserveRequest{RequestId: proof.NewID(), Attach: token, Admission: r.s, Role: roleSolo, TokenIds: r.ids, Pages: r.life()}
	ask := &brokerv1.ReserveRequest{RequestId: req.RequestId, Attach: token}
	_, err := w.Reserve(t.Context(), ask)
	wantKind(t, "asking before", errs.FromStatus(err), errs.NotFound)
	first, err := w.Reserve(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	for what, again := range map[string]*brokerv1.ReserveRequest{"retrying": req, "asking": ask} {
		if got, err := w.Reserve(t.Context(), again); err != nil || !proto.Equal(got, first) {
			t.Errorf("%s = %v, %v, want the first answer", what, got, err)
		}
	}
	other := proto.Clone(req).(*brokerv1.ReserveRequest)
	other.Pages++
	_, err = w.Reserve(t.Context(), other)
	wantKind(t, "another request with the same id", errs.FromStatus(err), errs.Invalid)
	_, err = w.Reserve(t.Context(), &brokerv1.ReserveRequest{RequestId: []byte("short"), Attach: token, Admission: r.s})
	wantKind(t, "a short request id", errs.FromStatus(err), errs.Invalid)
	fresh := proto.Clone(req).(*brokerv1.ReserveRequest)
	fresh.RequestId = proof.NewID()
	_, err = w.Reserve(t.Context(), fresh)
	wantKind(t, "a second lease for the admission", errs.FromStatus(err), errs.Invalid)
	retireRaw := &brokerv1.RetireRequest{Attach: token, Lease: first.Lease, Epoch: first.Epoch, Ok: true}
	if _, err := w.Retire(t.Context(), retireRaw); err != nil {
		t.Fatal(err)
	}
	_, err = w.Reserve(t.Context(), ask)
	wantKind(t, "asking after the end", errs.FromStatus(err), errs.NotFound)
	n.baseline(t)
}

func TestLeaseAnswersToItsOwnHandleOnly(t *testing.T) {
	f := newFleet(t)
	n := newNode(t, f, "b1", 8)
	w, token := n.raw(t, "d0")
	_, stranger := n.raw(t, "d1")
	r := newRequest(t, 100, 29, none)
	got, err := w.Reserve(t.Context(), &brokerv1.ReserveRequest{RequestId: proof.NewID(), Attach: token, Admission: r.s, Role: roleSolo, TokenIds: r.ids, Pages: r.life()})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		attach []byte
		lease  []byte
		epoch  uint64
		want   errs.Kind
	}{
		{"another worker's handle", stranger, got.Lease, got.Epoch, errs.NotFound},
		{"an unknown handle", proof.NewID(), got.Lease, got.Epoch, errs.Stale},
		{"half a handle", token[:8], got.Lease, got.Epoch, errs.Stale},
		{"an old epoch", token, got.Lease, got.Epoch - 1, errs.Stale},
		{"an unknown lease", token, proof.NewID(), got.Epoch, errs.NotFound},
		{"a prefix of the lease's id", token, got.Lease[:8], got.Epoch, errs.Invalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := w.Seal(t.Context(), &brokerv1.SealRequest{Attach: tt.attach, Lease: tt.lease, Epoch: tt.epoch})
			wantKind(t, "Seal", errs.FromStatus(err), tt.want)
			_, err = w.Finish(t.Context(), &brokerv1.FinishRequest{Attach: tt.attach, Lease: tt.lease, Epoch: tt.epoch})
			wantKind(t, "Finish", errs.FromStatus(err), tt.want)
			_, err = w.AwaitOwned(t.Context(), &brokerv1.AwaitOwnedRequest{Attach: tt.attach, Lease: tt.lease, Epoch: tt.epoch})
			wantKind(t, "AwaitOwned", errs.FromStatus(err), tt.want)
			if _, err = w.Retire(t.Context(), &brokerv1.RetireRequest{Attach: tt.attach, Lease: tt.lease, Epoch: tt.epoch}); err == nil {
				t.Error("Retire is taken")
			}
		})
	}
	if n.states()[lease.Writing] != r.life() {
		t.Errorf("states = %v: the lease was hurt", n.states())
	}
	// Finish, AwaitOwned and Retire with the old epoch; the Seal was of no pages, and all others were not its worker's.
	if got := n.count(t, MetricIncidents, "kind", "epoch"); got != 3 {
		t.Errorf("%d incidents of an old epoch, want 3", got)
	}
	if _, err := w.Retire(t.Context(), &brokerv1.RetireRequest{Attach: token, Lease: got.Lease, Epoch: got.Epoch, Ok: true}); err != nil {
		t.Fatal(err)
	}
	n.baseline(t)
}

func TestAbandonedReserveLeavesNothing(t *testing.T) {
	f := newFleet(t)
	n := newNode(t, f, "b1", 8)
	r := newRequest(t, 190, 4, meshv1.Mover_MOVER_GRPC)
	g := newRogue(t, identityOf("b0"), r)
	arrived, release := make(chan struct{}), make(chan struct{})
	g.attached = func(*brokerv1.PullOpen) error { // a peer that accepts and never answers
		close(arrived)
		<-release
		return nil
	}
	f.list(t, "b0", func(s grpc.ServiceRegistrar) { brokerv1.RegisterPeerServiceServer(s, g) })
	defer close(release)
	d := n.attach(t, "d0")
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	_, err := d.Reserve(ctx, client.Reservation{Admission: r.s, Role: roleDest, TokenIDs: r.ids, Pages: r.life()})
	wantKind(t, "Reserve", err, errs.Unavailable)
	n.baseline(t)
}

func TestDeadlineQuarantinesAndFreesNothing(t *testing.T) {
	f := newFleet(t)
	n := newNode(t, f, "b1", 8)
	d := n.attach(t, "d0")
	r := newRequest(t, 100, 29, none, func(a *meshv1.Admission) { a.DeadlineUnixMs = time.Now().Add(200 * time.Millisecond).UnixMilli() })
	l, err := d.Reserve(t.Context(), r.solo())
	if err != nil {
		t.Fatal(err)
	}
	within(t, "revoke at the deadline", l.Revoked())
	if s := n.states(); s[lease.Quarantine] != r.life() || s[lease.Free] != 8-r.life() {
		t.Errorf("states after the deadline = %v, want %d in quarantine", s, r.life())
	}
	for _, p := range l.Pages {
		if tag := d.Mapping().LoadTag(p); tag.Slot() != 0 {
			t.Errorf("page %d still has tag %v", p, tag)
		}
	}
	retire(t, l, false)
	n.baseline(t)
}

func TestFullQuarantineStopsGranting(t *testing.T) {
	f := newFleet(t)
	n := newNode(t, f, "b1", 8, func(c *Config) { c.QuarantineCap = 1 })
	d := n.attach(t, "d0")
	l, err := d.Reserve(t.Context(), newRequest(t, 100, 29, none).solo())
	if err != nil {
		t.Fatal(err)
	}
	n.step(lease.Expire{Lease: lease.ID(l.ID)})
	_, err = d.Reserve(t.Context(), newRequest(t, 10, 4, none).solo())
	wantKind(t, "Reserve over the quarantine's cap", err, errs.Exhausted)
	wantKind(t, "Ready", n.Ready(t.Context()), errs.Unavailable)
	eventually(t, "Watch says draining", func() bool { return d.Pool().Draining })
	retire(t, l, false)
	n.baseline(t)
	if err := n.Ready(t.Context()); err != nil {
		t.Errorf("Ready = %v after the quarantine is empty", err)
	}
}

// TestAFloodLeavesRoomForOthers: a tenant that has a request may not take what is left, another tenant finds it there.
func TestAFloodLeavesRoomForOthers(t *testing.T) {
	f := newFleet(t)
	n := newNode(t, f, "b1", 5, func(c *Config) { c.Share = 1 })
	d := n.attach(t, "d0")
	first, err := d.Reserve(t.Context(), newRequest(t, 100, 29, none).solo())
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.Reserve(t.Context(), newRequest(t, 100, 29, none).solo())
	wantKind(t, "a second request of the tenant, which would leave 1 of 5 pages", err, errs.Exhausted)
	other := newRequest(t, 100, 29, none, func(a *meshv1.Admission) { a.Tenant = "globex" })
	second, err := d.Reserve(t.Context(), other.solo())
	if err != nil {
		t.Fatalf("another tenant's request: %v", err)
	}
	retire(t, first, true)
	retire(t, second, true)
	n.baseline(t)
}
