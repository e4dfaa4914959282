package explore

import (
	"leasehold.dev/kvbroker/lease"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/proof"
	"leasehold.dev/router/verdict"
)

// fail ends a request badly, closed: no token, and both workers are told to stop.
func (w *world) fail(r *request) {
	if c := &w.calls[r.id]; c.out == open {
		c.out = failed
	}
}

func (w *world) admitted(l *wlease, expected uint32) *decodev1.Admitted {
	return &decodev1.Admitted{LeaseHash: proof.LeaseHash(l.ref.Lease[:]), Pages: uint32(len(l.pages)), ExpectedPages: expected}
}

func (w *world) verdictSolo(l *wlease) {
	c, r := &w.calls[l.req], &w.plan.reqs[l.req]
	c.admitted, c.decode = w.admitted(l, 0), dVerdict
	c.dv = &meshv1.DecodeVerdict{AdmissionId: r.admission.Id, LeaseHash: proof.LeaseHash(l.ref.Lease[:]), ModelRevision: revision,
		LayoutHash: layout, PromptDigest: r.admission.PromptDigest, Mover: r.Mover, Unsplit: true, Instance: w.instanceOf(decode), Epoch: l.ref.Epoch}
}

// verdictDecode is made of what D's broker has verified, as it was counted there.
func (w *world) verdictDecode(l *wlease, d *dest) {
	c, r := &w.calls[l.req], &w.plan.reqs[l.req]
	done, moved := d.completion, uint64(d.rx.Pages())*pageBytes
	c.admitted, c.decode = w.admitted(l, d.expect.Pages), dVerdict
	c.dv = &meshv1.DecodeVerdict{AdmissionId: r.admission.Id, LeaseHash: proof.LeaseHash(l.ref.Lease[:]), SourceLeaseHash: done.Lease,
		SourceInstance: done.Instance, SourceEpoch: done.Epoch, ModelRevision: revision, LayoutHash: layout, PromptDigest: d.expect.PromptDigest,
		FromToken: done.FromToken, Rows: d.rows, Pages: done.Pages, ExpectedPages: d.expect.Pages, Root: done.Root, BytesMoved: moved, Mover: r.Mover,
		Instance: w.instanceOf(decode), Epoch: l.ref.Epoch}
}

// instanceOf is that of the broker which the worker is attached to.
func (w *world) instanceOf(worker int) []byte {
	return instance(w.plan.at[worker], w.workers[worker].inc)
}

// verdictPrefill is made of what P's kernels counted, and the root that its broker answered with.
func (w *world) verdictPrefill(s say, p *parked) {
	n, c, r := &w.workers[prefill], &w.calls[s.req], &w.plan.reqs[s.req]
	if !n.alive || n.process != s.process || c.prefill != pRuns {
		return
	}
	c.prefill = pVerdict
	c.pv = &meshv1.PrefillVerdict{AdmissionId: r.admission.Id, LeaseHash: proof.LeaseHash(s.ref.Lease[:]), Instance: w.instanceOf(prefill),
		Epoch: s.ref.Epoch, ModelRevision: revision, LayoutHash: layout, PromptDigest: r.admission.PromptDigest, Rows: s.rows, Pages: r.moved, Root: p.root}
}

func (w *world) canCompare(r *request) bool {
	c := &w.calls[r.id]
	return c.out == open && c.decode == dVerdict && (r.solo() || c.prefill == pVerdict && w.settled(r))
}

// settled says that decode has heard of the second looks: it gives no token away before.
func (w *world) settled(r *request) bool {
	b := w.taker()
	h := b.destFor(r.id)
	return b.up && h != nil && h.dest.settled
}

// compare lets the first token out, or not.
func (w *world) compare(r *request) {
	c := &w.calls[r.id]
	err := verdict.Compare(verdict.Views{Admission: r.admission, Layout: layout, Admitted: c.admitted, Decode: c.dv, Prefill: c.pv})
	if err != nil {
		w.note("  the router: %v", err)
		w.fail(r)
		return
	}
	c.out = succeeded
	if !r.solo() && !c.verified {
		w.violate("%s's request %d succeeds without a verified Completion", r.Tenant, r.id)
	}
	n := &w.workers[decode]
	for i := range n.leases {
		l := &n.leases[i]
		if l.req != r.id || l.stub != 0 {
			continue
		}
		if b := w.taker(); b.up && b.inc == l.inc && w.passes(decode, l, 0, uint32(len(l.pages))) {
			w.genuine(b, r.id, l.pages, "a request succeeds")
		}
		if l.role == lease.Solo {
			w.drop(decode, l.ref, say{kind: sayRetire, ok: true})
		}
		return
	}
}

// genuine says that a request's pages hold what their places must hold, and nothing else.
func (w *world) genuine(b *broker, req uint8, pages []lease.PageTag, when string) {
	r := &w.plan.reqs[req]
	for i, p := range pages {
		got := b.mem[p.Page]
		filled := r.solo() || uint32(i) < r.moved
		if want := (content{by: req + 1, place: uint8(i), tail: got.tail}); filled && got != want || got.by != 0 && got.by != req+1 {
			w.violate("broker %s: %s for %s's request %d, and page %d at place %d holds %v", b.name(), when, r.Tenant, req, p.Page, i, got)
		}
	}
}
