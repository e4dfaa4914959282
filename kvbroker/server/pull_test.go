package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/kvbroker/client"
	"leasehold.dev/kvbroker/lease"
	"leasehold.dev/protos/errs"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/proof"
)

var movers = []meshv1.Mover{meshv1.Mover_MOVER_GRPC, shm, meshv1.Mover_MOVER_LOCAL}

func TestPagesArriveVerified(t *testing.T) {
	for _, m := range movers {
		for _, n := range []uint32{2, 64, 65, 66, 129, 193} {
			t.Run(fmt.Sprintf("%v of %d tokens", m, n), func(t *testing.T) {
				k := newPair(t, m)
				r := newRequest(t, n, 20, m)
				dst := r.decode(t, k.d)
				src := r.prefill(t, k.p)
				if src.From != 0 || uint32(len(src.Pages)) != r.moved() {
					t.Errorf("source from %d in %d pages, want 0 and %d", src.From, len(src.Pages), r.moved())
				}
				fin := fill(t, k.p, src, r)
				o, err := bothLooks(t, dst)
				if err != nil {
					t.Fatal(err)
				}
				checkOwned(t, k, r, o, fin)
				retire(t, src, true)
				retire(t, dst, true)
				k.baseline(t)
				if got := k.b0.count(t, MetricIncidents, "", "") + k.b1.count(t, MetricIncidents, "", ""); got != 0 {
					t.Errorf("%d incidents, want none", got)
				}
			})
		}
	}
}

func checkOwned(t *testing.T, k *pair, r *request, o *client.Owned, fin client.Finish) {
	t.Helper()
	c := o.Completion()
	if o.Rows() != r.rows() || fin.Rows != r.rows() || o.ExpectedPages() != r.moved() || fin.Pages != r.moved() || c.Pages != r.moved() {
		t.Errorf("rows %d and %d, pages %d, %d and %d; want %d rows in %d pages", o.Rows(), fin.Rows, o.ExpectedPages(),
			fin.Pages, c.Pages, r.rows(), r.moved())
	}
	if len(c.Root) != 32 || !bytes.Equal(c.Root, fin.Root) || len(c.Mac) != 0 {
		t.Errorf("root %x here and %x at P, MAC of %d bytes; want equal roots and no MAC", c.Root, fin.Root, len(c.Mac))
	}
	want := uint64(0)
	if r.a.Mover != meshv1.Mover_MOVER_LOCAL {
		want = uint64(r.moved()) * small.PageBytes()
	}
	if o.BytesMoved() != want {
		t.Errorf("%d bytes moved, want %d", o.BytesMoved(), want)
	}
	if uint32(len(o.Pages())) != r.life() {
		t.Fatalf("%d pages owned, want %d", len(o.Pages()), r.life())
	}
	for i, p := range o.Pages() {
		tag, place := k.d.Mapping().LoadTag(p), uint32(i)
		if tag.Slot() == 0 || tag.Masked() != o.Tags()[i].Masked() || tag.Sealed() != (place < r.rows()/64) {
			t.Errorf("page %d has tag %v, granted %v", i, tag, o.Tags()[i])
		}
		if place >= r.moved() {
			continue
		}
		d, _, err := engine.PageSum(small, k.d.Mapping().Page(p), min(64, r.rows()-place*64), testKeys)
		if err != nil || !bytes.Equal(d[:], c.Digests[i]) {
			t.Errorf("page %d in D's mapping has digest %v, %v, want %x", i, d, err, c.Digests[i])
		}
	}
	if start := o.StartDigest(); (start != nil) != (r.rows()%64 != 0) {
		t.Errorf("start digest %v with %d rows", start, r.rows())
	}
}

func TestPagesAreNobodysUntilVerified(t *testing.T) {
	for _, m := range movers {
		t.Run(m.String(), func(t *testing.T) {
			k := newPair(t, m)
			r := newRequest(t, 130, 4, m)
			dst := r.decode(t, k.d)
			src := r.prefill(t, k.p)
			if err := src.Seal(t.Context(), []client.Seal{compute(t, k.p, src, r.ids, 0, 64)}); err != nil {
				t.Fatal(err)
			}
			if m != meshv1.Mover_MOVER_LOCAL {
				eventually(t, "page 0 staged", func() bool { return k.b1.states()[lease.Staged] == 1 })
			}
			for i, p := range dst.Pages {
				if tag := k.d.Mapping().LoadTag(p); tag.Slot() != 0 || dst.Tags[i] != 0 {
					t.Errorf("page %d has tag %v (granted %v) before it was verified", i, tag, dst.Tags[i])
				}
			}
			retire(t, src, false)
			_, err := dst.AwaitOwned(t.Context())
			wantKind(t, "AwaitOwned after P gave up", err, errs.Unavailable)
			retire(t, dst, false)
			k.baseline(t)
		})
	}
}

func TestFlippedByteIsNeverOwned(t *testing.T) {
	for _, tt := range []struct {
		name   string
		mover  meshv1.Mover
		place  uint32
		staged bool // flip it at D, once it has arrived; else at P, after its digest was taken
	}{
		{"while staged at D, first page", meshv1.Mover_MOVER_GRPC, 0, true},
		{"while staged at D, first page, shared memory", shm, 0, true},
		{"while staged at D, middle page", meshv1.Mover_MOVER_GRPC, 1, true},
		{"while staged at D, middle page, shared memory", shm, 1, true},
		{"at rest at P, first page", meshv1.Mover_MOVER_GRPC, 0, false},
		{"at rest at P, first page, shared memory", shm, 0, false},
		{"at rest at P, last page", meshv1.Mover_MOVER_GRPC, 2, false},
		{"at rest at P, last page, shared memory", shm, 2, false},
		{"at rest in the shared pool, first page", meshv1.Mover_MOVER_LOCAL, 0, false},
		{"at rest in the shared pool, last page", meshv1.Mover_MOVER_LOCAL, 2, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := newPair(t, tt.mover, func(c *Config) { c.CheckShare = 0 })
			r := newRequest(t, 190, 4, tt.mover)
			dst := r.decode(t, k.d)
			src := r.prefill(t, k.p)
			for place := range uint32(3) {
				s := compute(t, k.p, src, r.ids, place, min(64, r.rows()-place*64))
				if place == tt.place && !tt.staged {
					k.p.Mapping().Page(src.Pages[place])[100] ^= 1
				}
				var err error
				if place < 2 {
					err = src.Seal(t.Context(), []client.Seal{s})
				} else {
					_, err = src.Finish(t.Context(), []client.Seal{s}, r.rows())
				}
				if err != nil {
					t.Fatal(err)
				}
				if place == tt.place && tt.staged {
					eventually(t, "page staged", func() bool { return k.b1.states()[lease.Staged] == place+1 })
					k.d.Mapping().Page(dst.Pages[place])[100] ^= 1
				}
			}
			_, err := bothLooks(t, dst)
			wantKind(t, "the wait for both looks", err, errs.Corrupt)
			within(t, "revoke of the destination", dst.Revoked())
			if got := k.b1.count(t, MetricIncidents, "kind", "transfer"); got != 1 {
				t.Errorf("%d transfer incidents, want 1", got)
			}
			retire(t, src, true)
			retire(t, dst, false)
			k.baseline(t)
		})
	}
}

func TestRefusalOfPrefillEndsTheWaitAtOnce(t *testing.T) {
	for _, m := range movers {
		t.Run(m.String(), func(t *testing.T) {
			k := newPair(t, m)
			r := newRequest(t, 100, 4, m)
			dst := r.decode(t, k.d)
			err := k.p.Refuse(t.Context(), r.s, errs.New(errs.Limit, "100 tokens, P holds 64"))
			if err != nil {
				t.Fatal(err)
			}
			_, err = dst.AwaitOwned(t.Context())
			wantKind(t, "AwaitOwned", err, errs.Limit)
			within(t, "revoke of the destination", dst.Revoked())
			retire(t, dst, false)
			k.baseline(t)
		})
	}
}

// What decides whether the request may be tried again: the kind that prefill's failure had.
func TestDecodeHearsTheKindOfPrefillsFailure(t *testing.T) {
	fault := []engine.Fault{{Kind: engine.FaultRead, Page: 1, Want: 2, Got: 3}}
	for _, tt := range []struct {
		name string
		end  func(l *client.Lease) error
		want errs.Kind
	}{
		{"gave up, without a kind", func(l *client.Lease) error { return l.Retire(context.Background(), false, "test", nil) }, errs.Unavailable},
		{"was cancelled", func(l *client.Lease) error { return l.Fail(context.Background(), context.Canceled, nil) }, errs.Unavailable},
		{"counted other rows", func(l *client.Lease) error {
			return l.Fail(context.Background(), errs.New(errs.Corrupt, "99 rows, the engine has 98"), nil)
		}, errs.Corrupt},
		{"is over a limit", func(l *client.Lease) error { return l.Fail(context.Background(), errs.New(errs.Limit, "test"), nil) }, errs.Limit},
		{"has a bug", func(l *client.Lease) error { return l.Fail(context.Background(), errors.New("test"), nil) }, errs.Internal},
		{"met foreign pages", func(l *client.Lease) error { return l.Retire(context.Background(), false, "test", fault) }, errs.Corrupt},
		{"met foreign pages, and takes it lightly", func(l *client.Lease) error { return l.Retire(context.Background(), true, "", fault) }, errs.Corrupt},
		{"met foreign pages, and says that it is busy", func(l *client.Lease) error {
			return l.Fail(context.Background(), errs.New(errs.Unavailable, "test"), fault)
		}, errs.Corrupt},
	} {
		for _, m := range movers {
			t.Run(tt.name+", "+m.String(), func(t *testing.T) {
				k := newPair(t, m)
				r := newRequest(t, 190, 4, m)
				dst, src := r.decode(t, k.d), r.prefill(t, k.p)
				if err := src.Seal(t.Context(), []client.Seal{compute(t, k.p, src, r.ids, 0, 64)}); err != nil {
					t.Fatal(err)
				}
				if err := tt.end(src); err != nil {
					t.Fatal(err)
				}
				_, err := dst.AwaitOwned(t.Context())
				wantKind(t, "AwaitOwned", err, tt.want)
				retire(t, dst, false)
				k.baseline(t)
			})
		}
	}
}

func TestDecodeGivingUpEndsBothLeasesAtOnce(t *testing.T) {
	for _, m := range movers {
		for _, when := range []string{"before P came", "while P computes", "after P finished"} {
			t.Run(fmt.Sprintf("%v %s", m, when), func(t *testing.T) {
				k := newPair(t, m)
				r := newRequest(t, 100, 4, m)
				dst := r.decode(t, k.d)
				var src *client.Lease
				switch when {
				case "while P computes":
					src = r.prefill(t, k.p)
				case "after P finished":
					src = r.prefill(t, k.p)
					fill(t, k.p, src, r)
					if _, err := bothLooks(t, dst); err != nil {
						t.Fatal(err)
					}
				}
				retire(t, dst, false)
				switch when {
				case "before P came":
					eventually(t, "the Pull's end at P", func() bool { return len(k.b0.describe(noTime).Leases) == 0 && k.pulls() == 0 })
					_, err := k.p.Reserve(t.Context(), client.Reservation{Admission: r.s, Role: roleSource, TokenIDs: r.ids, Pages: r.moved()})
					wantKind(t, "Reserve of a source whose Pull is gone", err, errs.Unavailable)
					wantKind(t, "Refuse of a Pull that is gone", k.p.Refuse(t.Context(), r.s, errs.New(errs.Limit, "test")), errs.Unavailable)
				case "while P computes":
					within(t, "revoke of the source", src.Revoked())
					wantKind(t, "RevokeErr", src.RevokeErr(), errs.Unavailable)
					err := src.Seal(t.Context(), []client.Seal{compute(t, k.p, src, r.ids, 0, 64)})
					if err == nil {
						t.Error("a revoked source still takes seals")
					}
					retire(t, src, false)
				}
				k.baseline(t)
			})
		}
	}
}

func (k *pair) pulls() int {
	n := 0
	for _, b := range []*node{k.b0, k.b1} {
		b.mu.Lock()
		n += len(b.parked)
		b.mu.Unlock()
	}
	return n
}

func TestPullsBindTheirAdmission(t *testing.T) {
	k := newPair(t, meshv1.Mover_MOVER_GRPC)
	r, other := newRequest(t, 100, 4, meshv1.Mover_MOVER_GRPC), newRequest(t, 100, 4, meshv1.Mover_MOVER_GRPC)
	dst := r.decode(t, k.d)
	_, err := k.p.Reserve(t.Context(), client.Reservation{Admission: other.s, Role: roleSource, TokenIDs: other.ids, Pages: other.moved()})
	wantKind(t, "Reserve of a source for another admission", err, errs.Unavailable)
	r.ids[5]++
	_, err = k.p.Reserve(t.Context(), client.Reservation{Admission: r.s, Role: roleSource, TokenIDs: r.ids, Pages: r.moved()})
	wantKind(t, "Reserve of a source with other token ids", err, errs.Corrupt)
	r.ids[5]--
	forged := &meshv1.SignedAdmission{Admission: r.s.Admission, Signature: bytes.Repeat([]byte{1}, 64)}
	_, err = k.p.Reserve(t.Context(), client.Reservation{Admission: forged, Role: roleSource, TokenIDs: r.ids, Pages: r.moved()})
	wantKind(t, "Reserve with a forged admission", err, errs.Corrupt)
	src := r.prefill(t, k.p)
	_, err = k.p.Reserve(t.Context(), client.Reservation{Admission: r.s, Role: roleSource, TokenIDs: r.ids, Pages: r.moved()})
	wantKind(t, "a second source of the admission", err, errs.Invalid)
	fill(t, k.p, src, r)
	if _, err := bothLooks(t, dst); err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(src.Hash(), dst.Hash()) || !bytes.Equal(src.Hash(), proof.LeaseHash(src.ID)) {
		t.Error("lease hashes are wrong")
	}
	retire(t, src, true)
	retire(t, src, true) // a repeat is no error
	retire(t, dst, true)
	k.baseline(t)
}
