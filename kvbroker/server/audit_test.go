package server

import (
	"encoding/hex"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/gpu/pool"
	"leasehold.dev/kvbroker/client"
	"leasehold.dev/kvbroker/lease"
	"leasehold.dev/mesh/audit/audittest"
	"leasehold.dev/mesh/audit/event"
	"leasehold.dev/protos/errs"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

// audited gives a node a log; read closes it and returns its events.
func audited(t *testing.T) (opt option, read func() []any) {
	t.Helper()
	l := audittest.Open(t, "kvbroker", "b1")
	return func(c *Config) { c.Audit = l.Log }, l.Events
}

func tagged(pages []uint32, tags []pool.Tag) (out event.Pages) {
	for i, p := range pages {
		out = append(out, event.Page{Number: p, Generation: tags[i].Generation()})
	}
	return out
}

func TestALeaseIsOnRecordFromGrantToZero(t *testing.T) {
	opt, read := audited(t)
	n := newNode(t, newFleet(t), "b1", 8, opt)
	d := n.attach(t, "d0")
	r := newRequest(t, 100, 29, none)
	l, err := d.Reserve(t.Context(), r.solo())
	if err != nil {
		t.Fatal(err)
	}
	retire(t, l, true)
	n.baseline(t)
	name := hex.EncodeToString(l.Hash())
	want := []any{
		event.BrokerStarted{Broker: "b1", Instance: hex.EncodeToString(n.Instance()), Pages: 8},
		event.LeaseGranted{Lease: name, Admission: hex.EncodeToString(r.a.Id), Tenant: "t0", Worker: "d0", Epoch: l.Epoch, Role: "solo", Pages: tagged(l.Pages, l.Tags)},
		event.Lease{As: event.KindLeaseReleased, Lease: name, Tenant: "t0", Role: "solo", Pages: 2},
		event.PagesZeroed{Lease: name, Pages: event.Numbered(l.Pages)},
	}
	if diff := cmp.Diff(want, read()); diff != "" {
		t.Error(diff)
	}
}

// auditedPair is newPair with a log at b1 alone.
func auditedPair(t *testing.T, m meshv1.Mover, opt option) *pair {
	t.Helper()
	return newPair(t, m, func(c *Config) {
		if c.Name == "b1" {
			opt(c)
		}
	})
}

func TestBothEndsOfATransferAreOnRecord(t *testing.T) {
	for _, m := range movers {
		t.Run(m.String(), func(t *testing.T) {
			opt, read := audited(t)
			k := auditedPair(t, m, opt)
			r := newRequest(t, 130, 20, m)
			dst := r.decode(t, k.d)
			src := r.prefill(t, k.p)
			fill(t, k.p, src, r)
			o, err := bothLooks(t, dst)
			if err != nil {
				t.Fatal(err)
			}
			retire(t, src, true)
			retire(t, dst, true)
			k.baseline(t)
			events := read()
			var owned event.LeaseOwned
			var zeroed []uint32
			for _, e := range events {
				switch e := e.(type) {
				case event.LeaseOwned:
					owned = e
				case event.PagesZeroed:
					for _, p := range e.Pages {
						zeroed = append(zeroed, p.Number)
					}
				}
			}
			want := event.LeaseOwned{Lease: hex.EncodeToString(dst.Hash()), Admission: hex.EncodeToString(r.a.Id), Tenant: "t0", Rows: 129,
				Pages: tagged(o.Pages(), o.Tags())}
			if diff := cmp.Diff(want, owned); diff != "" {
				t.Error(diff)
			}
			slices.Sort(zeroed)
			if all := slices.Sorted(slices.Values(o.Pages())); m != meshv1.Mover_MOVER_LOCAL && !slices.Equal(zeroed, all) {
				t.Errorf("pages %v were zeroed, want %v", zeroed, all)
			}
			way := "broker.started lease.granted lease.owned lease.released pages.zeroed"
			if m == meshv1.Mover_MOVER_LOCAL {
				way = "broker.started lease.granted lease.granted lease.finished lease.handed-over lease.owned lease.released pages.zeroed"
			}
			if got := audittest.Kinds(events); got != way {
				t.Errorf("records:\n got %s\nwant %s", got, way)
			}
		})
	}
}

func TestABadEndIsOnRecordWithItsReasonAndItsProof(t *testing.T) {
	opt, read := audited(t)
	n := newNode(t, newFleet(t), "b1", 8, opt)
	d := n.attach(t, "d0")
	l, err := d.Reserve(t.Context(), newRequest(t, 100, 29, none).solo())
	if err != nil {
		t.Fatal(err)
	}
	faults := []engine.Fault{{Kind: engine.FaultRead, Page: l.Pages[0], Want: 5, Got: 7}, {Kind: engine.FaultRead, Page: l.Pages[1], Want: 5, Got: 7}}
	if err := l.Retire(t.Context(), true, "", faults); err != nil {
		t.Fatal(err)
	}
	n.baseline(t)
	events := read()
	if got, want := audittest.Kinds(events), "broker.started lease.granted lease.quarantined lease.proven incident.fault pages.zeroed"; got != want {
		t.Fatalf("records:\n got %s\nwant %s", got, want)
	}
	name := hex.EncodeToString(l.Hash())
	if q := events[2].(event.Lease); q.Lease != name || q.Tenant != "t0" || q.Reason == "" {
		t.Errorf("quarantined: %+v, want lease %.8s with a reason", q, name)
	}
	if diff := cmp.Diff(event.Fault{Lease: name, Count: 2, Page: l.Pages[0], Want: 5, Got: 7}, events[4]); diff != "" {
		t.Error(diff)
	}
}

func TestALateWriteIsOnRecord(t *testing.T) {
	opt, read := audited(t)
	n := newNode(t, newFleet(t), "b1", 1, opt)
	d := n.attach(t, "d0")
	d.Mapping().Page(0)[5] = 1 // a free page
	_, err := d.Reserve(t.Context(), newRequest(t, 10, 4, none).solo())
	wantKind(t, "Reserve of a page that is not zero", err, errs.Unavailable)
	eventually(t, "the page is withheld", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return len(n.withheld) == 1
	})
	events := read()
	late, ok := events[len(events)-1].(event.LateWrite)
	if !ok || late.Page != 0 || late.Suspects != 1 || late.Lease != events[1].(event.LeaseGranted).Lease || late.What == "" {
		t.Errorf("the last of %s is %+v, want the late write to page 0", audittest.Kinds(events), events[len(events)-1])
	}
	for _, e := range events {
		if z, ok := e.(event.PagesZeroed); ok {
			t.Errorf("a page that is withheld is on record as cleared: %+v", z)
		}
	}
}

func TestAFailedTransferIsOnRecord(t *testing.T) {
	opt, read := audited(t)
	k := auditedPair(t, meshv1.Mover_MOVER_GRPC, opt)
	r := newRequest(t, 130, 4, meshv1.Mover_MOVER_GRPC)
	dst := r.decode(t, k.d)
	src := r.prefill(t, k.p)
	seal := compute(t, k.p, src, r.ids, 0, 64)
	seal.Digest[0] ^= 1
	if err := src.Seal(t.Context(), []client.Seal{seal}); err != nil {
		t.Fatal(err)
	}
	if err := src.Seal(t.Context(), []client.Seal{compute(t, k.p, src, r.ids, 1, 64)}); err != nil {
		t.Fatal(err)
	}
	if _, err := src.Finish(t.Context(), []client.Seal{compute(t, k.p, src, r.ids, 2, 1)}, 129); err != nil {
		t.Fatal(err)
	}
	_, err := dst.AwaitOwned(t.Context())
	wantKind(t, "AwaitOwned of a page with another digest", err, errs.Corrupt)
	retire(t, dst, false)
	k.b1.baseline(t)
	var incident event.TransferFailed
	for _, e := range read() {
		if i, ok := e.(event.TransferFailed); ok {
			incident = i
		}
	}
	if incident.Lease != hex.EncodeToString(dst.Hash()) || incident.Error != "corrupt" || incident.Reason == "" {
		t.Errorf("incident %+v, want one of lease %x", incident, dst.Hash())
	}
}

func TestWhatCannotBePutOnRecordIsNotGranted(t *testing.T) {
	opt, read := audited(t)
	n := newNode(t, newFleet(t), "b1", 8, opt)
	d := n.attach(t, "d0")
	read() // closes the log
	_, err := d.Reserve(t.Context(), newRequest(t, 10, 4, none).solo())
	wantKind(t, "Reserve without a log to write", err, errs.Unavailable)
	if free := n.states()[lease.Free]; free != 8 {
		t.Errorf("%d pages free, want 8", free)
	}
}
