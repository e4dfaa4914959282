package server

import (
	"testing"

	"leasehold.dev/kvbroker/client"
	"leasehold.dev/kvbroker/lease"
	"leasehold.dev/protos/errs"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/pagesum"
)

func TestPageThatChangesAfterItWasSentFailsThePull(t *testing.T) {
	for _, m := range []meshv1.Mover{meshv1.Mover_MOVER_GRPC, shm} {
		t.Run(m.String(), func(t *testing.T) { pageChangesAfterItWasSent(t, m) })
	}
}

func pageChangesAfterItWasSent(t *testing.T, m meshv1.Mover) {
	k := newPair(t, m, func(c *Config) { c.CheckShare = 0 })
	r := newRequest(t, 190, 4, m)
	dst, src := r.decode(t, k.d), r.prefill(t, k.p)
	if err := src.Seal(t.Context(), []client.Seal{compute(t, k.p, src, r.ids, 0, 64)}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "page 0 is sent", func() bool { return k.b1.states()[lease.Staged] == 1 })
	k.p.Mapping().Page(src.Pages[0])[100] ^= 1 // what the rows of pages 1 and 2 are computed from
	rest := []client.Seal{compute(t, k.p, src, r.ids, 1, 64), compute(t, k.p, src, r.ids, 2, r.rows()-128)}
	if _, err := src.Finish(t.Context(), rest, r.rows()); err != nil {
		t.Fatal(err)
	}
	_, err := bothLooks(t, dst)
	wantKind(t, "the wait for both looks", err, errs.Corrupt)
	within(t, "revoke of the destination", dst.Revoked())
	if got := k.b0.count(t, MetricIncidents, "kind", "source"); got != 1 {
		t.Errorf("%d source incidents, want 1", got)
	}
	retire(t, src, true)
	retire(t, dst, false)
	k.baseline(t)
}

func TestWorkerWithImpossibleNumbersLosesItsLease(t *testing.T) {
	for name, say := range map[string]func(t *testing.T, k *pair, r *request, src *client.Lease) error{
		"a page sealed out of order": func(t *testing.T, k *pair, r *request, src *client.Lease) error {
			return src.Seal(t.Context(), []client.Seal{compute(t, k.p, src, r.ids, 1, 64)})
		},
		"a page of 63 rows in the middle": func(t *testing.T, k *pair, r *request, src *client.Lease) error {
			return src.Seal(t.Context(), []client.Seal{compute(t, k.p, src, r.ids, 0, 63)})
		},
		"a seal without digest": func(t *testing.T, _ *pair, _ *request, src *client.Lease) error {
			return src.Seal(t.Context(), []client.Seal{{Rows: 64, Digest: pagesum.Digest{}}})
		},
		"a finish after 1 page of 3": func(t *testing.T, k *pair, r *request, src *client.Lease) error {
			_, err := src.Finish(t.Context(), []client.Seal{compute(t, k.p, src, r.ids, 0, 64)}, r.rows())
			return err
		},
		"a finish with 1 row": func(t *testing.T, k *pair, r *request, src *client.Lease) error {
			_, err := src.Finish(t.Context(), []client.Seal{compute(t, k.p, src, r.ids, 0, 64)}, 1)
			return err
		},
		"a page sealed twice, with two digests": func(t *testing.T, k *pair, r *request, src *client.Lease) error {
			s := compute(t, k.p, src, r.ids, 0, 64)
			if err := src.Seal(t.Context(), []client.Seal{s}); err != nil {
				return err
			}
			s.Digest[0] ^= 1
			return src.Seal(t.Context(), []client.Seal{s})
		},
	} {
		for _, m := range movers {
			t.Run(name+", "+m.String(), func(t *testing.T) {
				k := newPair(t, m)
				r := newRequest(t, 190, 4, m)
				dst, src := r.decode(t, k.d), r.prefill(t, k.p)
				if err := say(t, k, r, src); err == nil {
					t.Error("the broker takes it")
				}
				within(t, "revoke of the source", src.Revoked())
				_, err := dst.AwaitOwned(t.Context())
				wantKind(t, "AwaitOwned", err, errs.Corrupt)
				retire(t, src, true)
				retire(t, dst, false)
				k.baseline(t)
			})
		}
	}
}
