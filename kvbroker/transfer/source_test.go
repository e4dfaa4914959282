package transfer

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"leasehold.dev/kvbroker/lease"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/pagesum"
	"leasehold.dev/protos/proof"
)

func TestNewSourceRefuses(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Broker, *meshv1.Admission, *brokerv1.PullOpen)
		kind   errs.Kind
		text   string
	}{
		{"H4: a pull for an old instance", func(_ *Broker, _ *meshv1.Admission, o *brokerv1.PullOpen) { o.ToInstance = id16("before") },
			errs.Stale, "pull: for instance"},
		{"a pull for no instance", func(_ *Broker, _ *meshv1.Admission, o *brokerv1.PullOpen) { o.ToInstance = nil },
			errs.Stale, "for instance (none)"},
		{"other weights here", func(b *Broker, _ *meshv1.Admission, _ *brokerv1.PullOpen) { b.ModelRevision = hash32("newer") },
			errs.Invalid, "admission for weights"},
		{"no secret", func(_ *Broker, _ *meshv1.Admission, o *brokerv1.PullOpen) { o.Secret = nil }, errs.Corrupt, "secret of 0"},
		{"a short secret", func(_ *Broker, _ *meshv1.Admission, o *brokerv1.PullOpen) { o.Secret = o.Secret[1:] }, errs.Corrupt, "secret of 31"},
		{"nobody asks", func(_ *Broker, _ *meshv1.Admission, o *brokerv1.PullOpen) { o.FromInstance = nil }, errs.Corrupt, "instance of 0"},
		{"H11: fewer rows than the admission has", func(_ *Broker, _ *meshv1.Admission, o *brokerv1.PullOpen) { o.Rows-- },
			errs.Corrupt, "148 rows in 3 pages asked, 150 tokens from 0 have 149 in 3"},
		{"H11: more pages", func(_ *Broker, _ *meshv1.Admission, o *brokerv1.PullOpen) { o.Pages++ }, errs.Corrupt, "149 rows in 4 pages asked"},
		{"a start inside a page", func(_ *Broker, _ *meshv1.Admission, o *brokerv1.PullOpen) { o.FromToken = 1 }, errs.Invalid, "from row 1"},
		{"nothing to move", func(_ *Broker, a *meshv1.Admission, _ *brokerv1.PullOpen) { a.PromptTokens = 1 }, errs.Invalid, "no row to move"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPair(t, 150, 0)
			own, a, open := p.p, proto.Clone(p.admission).(*meshv1.Admission), p.open()
			tt.change(&own, a, open)
			s, err := NewSource(own, a, open)
			if s != nil || errs.KindOf(err) != tt.kind || err == nil || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("NewSource = %v, %v (%v), want %v with %q", s, err, errs.KindOf(err), tt.kind, tt.text)
			}
		})
	}
}

// TestSourceSendsAsPagesSeal: nothing before the lease, each page once, the Completion last.
func TestSourceSendsAsPagesSeal(t *testing.T) {
	p := newPair(t, 150, 0)
	s := p.source
	if from, rows, pages := s.Want(); from != 0 || rows != 149 || pages != 3 {
		t.Fatalf("Want = %d, %d, %d", from, rows, pages)
	}
	seals := []lease.PageSeal{p.compute(0), p.compute(1), p.compute(2)}
	for i, tt := range []struct {
		o    Occurrence
		want Send
	}{
		{p.bound(), Send{}},
		{Sealed{seals[:1]}, Send{Places: []uint32{0}}},
		{Sealed{seals[:2]}, Send{Places: []uint32{1}}}, // the first is a retry
		{Finished{seals[1:], 149}, Send{Places: []uint32{2}, Sent: true}},
	} {
		if root := s.Root(); root != nil {
			t.Fatalf("root %x before Finished", root)
		}
		got, err := s.Step(tt.o)
		if d := cmp.Diff(tt.want, got); err != nil || d != "" {
			t.Fatalf("occurrence %d: %v (-want +got):\n%s", i, err, d)
		}
	}
	send, err := s.Step(Received{3, 3 * pageBytes})
	if err != nil {
		t.Fatal(err)
	}
	want := &brokerv1.Completion{AdmissionId: id16("admission"), Lease: proof.LeaseHash(p.lease[:]), Instance: id16("instance of p"), Epoch: 3,
		DestinationInstance: id16("instance of d"), Tenant: "acme", ModelRevision: hash32("weights"), LayoutHash: hash32("layout"),
		Rows: 149, Pages: 3, PromptDigest: p.admission.PromptDigest}
	for _, n := range seals {
		want.Digests = append(want.Digests, n.Digest[:])
	}
	if err := proof.Seal(p.secret, want); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(send.Completion, want) || !bytes.Equal(s.Root(), want.Root) || s.Pages() != 3 || s.Err() != nil {
		t.Errorf("completion\n%v, want\n%v", send.Completion, want)
	}
}

func TestSourceRefuses(t *testing.T) {
	p := newPair(t, 150, 0)
	b, n := p.bound(), []lease.PageSeal{p.compute(0), p.compute(1), p.compute(2)}
	other := func(change func(*Bound)) Bound { o := p.bound(); change(&o); return o }
	with := func(i int, change func(*lease.PageSeal)) []lease.PageSeal {
		out := append([]lease.PageSeal(nil), n...)
		change(&out[i])
		return out
	}
	all := Finished{n, 149}
	for _, tt := range []struct {
		name string
		in   []Occurrence
		kind errs.Kind
		text string
	}{
		{"a seal before the lease", []Occurrence{Sealed{n[:1]}}, errs.Invalid, "before the source lease"},
		{"a finish before the lease", []Occurrence{all}, errs.Invalid, "before the source lease"},
		{"a second lease", []Occurrence{b, b}, errs.Invalid, "second source lease"},
		{"a lease for fewer rows", []Occurrence{other(func(o *Bound) { o.Rows-- })}, errs.Corrupt, "lease of 148 rows in 3 pages, 149 in 3 asked"},
		{"a lease for more pages", []Occurrence{other(func(o *Bound) { o.Pages++ })}, errs.Corrupt, "in 4 pages"},
		{"a lease for another prompt", []Occurrence{other(func(o *Bound) { o.PromptDigest = hash32("x") })}, errs.Corrupt, "the lease is for prompt"},
		{"a lease for no prompt", []Occurrence{other(func(o *Bound) { o.PromptDigest = nil })}, errs.Corrupt, "the lease is for prompt (none)"},
		{"pages out of order", []Occurrence{b, Sealed{n[1:]}}, errs.Corrupt, "page 1 sealed, next is 0 of 3"},
		{"a page again with another digest", []Occurrence{b, Sealed{n[:1]}, Sealed{with(0, func(s *lease.PageSeal) { s.Digest[0]++ })}},
			errs.Corrupt, "page 0 sealed, next is 1"},
		{"a page again with other rows", []Occurrence{b, Sealed{n[:1]}, Sealed{with(0, func(s *lease.PageSeal) { s.Rows-- })}},
			errs.Corrupt, "page 0 sealed, next is 1"},
		{"a page more", []Occurrence{b, Sealed{append(n[:3:3], lease.PageSeal{Index: 3, Rows: 1, Digest: pagesum.Digest{1}})}},
			errs.Corrupt, "page 3 sealed, next is 3 of 3"},
		{"a page with fewer rows", []Occurrence{b, Sealed{with(0, func(s *lease.PageSeal) { s.Rows = 63 })}}, errs.Corrupt, "63 rows, its place holds 64"},
		{"a tail with more rows", []Occurrence{b, Sealed{with(2, func(s *lease.PageSeal) { s.Rows = 22 })}}, errs.Corrupt, "22 rows, its place holds 21"},
		{"a page without a digest", []Occurrence{b, Sealed{with(1, func(s *lease.PageSeal) { s.Digest = pagesum.Digest{} })}},
			errs.Corrupt, "page 1 sealed without a digest"},
		{"H13: a finish with the request's rows and one page", []Occurrence{b, Finished{n[:1], 149}}, errs.Corrupt, "149 rows, 64 appended in 1 pages"},
		{"a finish with rows of one page", []Occurrence{b, Finished{n[:1], 64}}, errs.Corrupt, "64 rows, 64 appended in 1 pages, 149 in 3 asked"},
		{"a finish twice", []Occurrence{b, all, all}, errs.Invalid, "finished twice"},
		{"received before the finish", []Occurrence{b, Sealed{n}, Received{3, 3 * pageBytes}}, errs.Corrupt, "before all were sent"},
		{"received fewer pages", []Occurrence{b, all, Received{2, 2 * pageBytes}}, errs.Corrupt, "received 2 pages"},
		{"received fewer bytes", []Occurrence{b, all, Received{3, 3*pageBytes - 1}}, errs.Corrupt, "received 3 pages of"},
		{"received twice", []Occurrence{b, all, Received{3, 3 * pageBytes}, Received{3, 3 * pageBytes}}, errs.Corrupt, "received twice"},
		{"H2: refused by the worker while parked", []Occurrence{Lost{errs.New(errs.Limit, "2,000 tokens, limit 1,024")}}, errs.Limit, "limit 1,024"},
		{"lost without a word", []Occurrence{b, Lost{}}, errs.Unavailable, "lost"},
		{"lost to a cancelled context", []Occurrence{b, Lost{context.Canceled}}, errs.Unavailable, "canceled"},
		{"nothing", []Occurrence{nil}, errs.Internal, "unknown occurrence"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newPair(t, 150, 0).source
			var err error
			for i, o := range tt.in {
				if _, err = s.Step(o); (err != nil) != (i == len(tt.in)-1) {
					t.Fatalf("occurrence %d of %d: %v", i, len(tt.in), err)
				}
			}
			if errs.KindOf(err) != tt.kind || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("error %v (%v), want %v with %q", err, errs.KindOf(err), tt.kind, tt.text)
			}
			if send, again := s.Step(Received{3, 3 * pageBytes}); !errors.Is(again, err) || send.Completion != nil || s.Root() != nil {
				t.Errorf("after the error: %+v, %v, root %x", send, again, s.Root())
			}
		})
	}
}

// TestSourceKeepsItsOwnCopies: what a caller does to its buffers later changes no proof.
func TestSourceKeepsItsOwnCopies(t *testing.T) {
	p := newPair(t, 65, 0)
	open := p.open()
	open.Secret, open.FromInstance = bytes.Clone(open.Secret), bytes.Clone(open.FromInstance)
	s, err := NewSource(p.p, p.admission, open)
	if err != nil {
		t.Fatal(err)
	}
	clear(open.Secret)
	clear(open.FromInstance)
	p.source = s
	if err := p.run(harm{}); err != nil {
		t.Error(err)
	}
}
