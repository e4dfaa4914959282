package reconcile_test

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/router/reconcile"
)

func hash(s string) []byte { h := sha256.Sum256([]byte(s)); return h[:] }

var start = time.Unix(1700000000, 0)

// story is an admission as all parties tell it.
type story struct {
	view reconcile.View
	p, d *brokerv1.LeaseRecord
}

// split is a request of 200 tokens and 57 new ones: 199 rows in 4 pages, 4 pages reserved. All agree.
func split(n int) *story {
	id := hash(fmt.Sprint("admission", n))[:16]
	a := &meshv1.Admission{Id: id, Tenant: "acme", ModelRevision: hash("weights"), PromptTokens: 200, MaxNewTokens: 57, PromptDigest: hash("prompt"),
		Prefill: "p0", Decode: "d0", PrefillBroker: "bp", DecodeBroker: "bd", Mover: meshv1.Mover_MOVER_GRPC}
	src, dst := hash(fmt.Sprint("src", n)), hash(fmt.Sprint("dst", n))
	return &story{
		view: reconcile.View{Admission: a, Admitted: &decodev1.Admitted{LeaseHash: dst, Pages: 4, ExpectedPages: 4},
			Decode: &meshv1.DecodeVerdict{LeaseHash: dst, SourceLeaseHash: src, SourceInstance: []byte("instance-of-bp-0"), SourceEpoch: 7,
				LayoutHash: hash("layout"), PromptDigest: hash("prompt"), Rows: 199, Pages: 4, ExpectedPages: 4, Root: hash("root")},
			Prefill: &meshv1.PrefillVerdict{LeaseHash: src, Instance: []byte("instance-of-bp-0"), Epoch: 7, PromptDigest: hash("prompt"), Rows: 199, Pages: 4, Root: hash("root")}},
		p: &brokerv1.LeaseRecord{AdmissionId: id, Role: brokerv1.Role_ROLE_SOURCE, Tenant: "acme", Worker: "p0", LeaseHash: src, Epoch: 7, Rows: 199,
			Pages: 4, Reserved: 4, PromptDigest: hash("prompt"), Root: hash("root"), LayoutHash: hash("layout"), ModelRevision: hash("weights"), Mover: meshv1.Mover_MOVER_GRPC},
		d: &brokerv1.LeaseRecord{AdmissionId: id, Role: brokerv1.Role_ROLE_DESTINATION, Tenant: "acme", Worker: "d0", LeaseHash: dst, Epoch: 3, Rows: 199,
			Pages: 4, Reserved: 4, PromptDigest: hash("prompt"), Root: hash("root"), SourceLeaseHash: src, SourceInstance: []byte("instance-of-bp-0"), SourceEpoch: 7,
			LayoutHash: hash("layout"), ModelRevision: hash("weights"), Mover: meshv1.Mover_MOVER_GRPC},
	}
}

// solo is the same request, computed by D.
func solo(n int) *story {
	s := split(n)
	a := s.view.Admission
	a.Prefill, a.PrefillBroker, a.Mover = "", "", meshv1.Mover_MOVER_NONE
	s.view.Prefill = nil
	s.view.Decode = &meshv1.DecodeVerdict{LeaseHash: s.d.LeaseHash, LayoutHash: hash("layout"), PromptDigest: hash("prompt"), Unsplit: true}
	s.p = nil
	s.d = &brokerv1.LeaseRecord{AdmissionId: a.Id, Role: brokerv1.Role_ROLE_SOLO, Tenant: "acme", Worker: "d0", LeaseHash: s.d.LeaseHash, Epoch: 3, Reserved: 4,
		PromptDigest: hash("prompt"), LayoutHash: hash("layout"), ModelRevision: hash("weights")}
	return s
}

// streams numbers the records of each broker as they are told.
type streams map[string]uint64

func (s streams) tell(at time.Time, broker string, r *brokerv1.LeaseRecord) reconcile.Event {
	s[broker]++
	r.Seq = s[broker]
	return reconcile.Recorded{At: at, Broker: broker, Instance: fmt.Sprintf("instance-of-%s-0", broker), Records: []*brokerv1.LeaseRecord{r}}
}

// run tells the story, then lets time pass.
func run(s *story, answered bool) (fields string, matches []reconcile.Match) {
	c, n := reconcile.New(reconcile.Config{Patience: time.Minute, Open: 10}), streams{}
	var events []reconcile.Event
	if s.p != nil {
		events = append(events, n.tell(start, "bp", s.p))
	}
	if s.d != nil {
		events = append(events, n.tell(start, "bd", s.d))
	}
	events = append(events, reconcile.Decided{At: start, Answered: answered, View: s.view}, reconcile.Tick{At: start.Add(time.Minute)})
	var all []string
	for _, e := range events {
		r := c.Step(e)
		for _, f := range r.Findings {
			all = append(all, f.Field)
		}
		matches = append(matches, r.Matches...)
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), " "), matches
}

func TestStoriesThatAgree(t *testing.T) {
	if fields, m := run(split(1), true); fields != "" || !slices.Equal(m, []reconcile.Match{{Prefill: "p0", Decode: "d0"}}) {
		t.Errorf("split: %q, %v", fields, m)
	}
	if fields, m := run(solo(1), true); fields != "" || !slices.Equal(m, []reconcile.Match{{Decode: "d0"}}) {
		t.Errorf("solo: %q, %v", fields, m)
	}
}

// Each row lets one party say one thing that the others do not.
func TestEachLieIsFound(t *testing.T) {
	for _, c := range []struct {
		why      string
		twist    func(*story)
		unsplit  bool
		answered bool
		want     string
	}{
		{why: "the incident: P refused, D says success, and the answer goes out", answered: true, want: "prefill.outcome",
			twist: func(s *story) { s.p.Code, s.p.LeaseHash, s.p.Root, s.p.Rows, s.p.Pages = 11, nil, nil, 0, 0 }},
		{why: "P refused, D says success, the request failed all the same", want: "prefill.outcome", twist: func(s *story) { s.p.Code = 11 }},
		{why: "D refused, and the answer goes out", answered: true, want: "decode.outcome", twist: func(s *story) { s.d.Code = 8 }},
		{why: "both refused, and the answer goes out", answered: true, want: "decode.outcome prefill.outcome", twist: func(s *story) { s.d.Code, s.p.Code = 8, 8 }},
		{why: "the stub: P's broker counted one row of one page", answered: true, want: "prefill.pages prefill.rows", twist: func(s *story) { s.p.Rows, s.p.Pages = 1, 1 }},
		{why: "P's worker lies about its rows", answered: true, want: "prefill.rows", twist: func(s *story) { s.view.Prefill.Rows = 1 }},
		{why: "P's worker lies about its pages", answered: true, want: "prefill.pages", twist: func(s *story) { s.view.Prefill.Pages = 1 }},
		{why: "D's worker lies about its rows", answered: true, want: "decode.rows", twist: func(s *story) { s.view.Decode.Rows = 200 }},
		{why: "D's worker lies about its pages", answered: true, want: "decode.pages", twist: func(s *story) { s.view.Decode.Pages = 5 }},
		{why: "both halves agree on too few rows", answered: true, want: "decode.pages decode.rows prefill.pages prefill.rows", twist: func(s *story) {
			s.p.Rows, s.d.Rows, s.p.Pages, s.d.Pages = 64, 64, 1, 1
			s.view.Prefill.Rows, s.view.Decode.Rows, s.view.Prefill.Pages, s.view.Decode.Pages = 64, 64, 1, 1
		}},
		{why: "another root at D", answered: true, want: "root", twist: func(s *story) { s.d.Root = hash("x") }},
		{why: "another root from P's worker", answered: true, want: "root", twist: func(s *story) { s.view.Prefill.Root = hash("x") }},
		{why: "no root anywhere", answered: true, want: "root", twist: func(s *story) {
			s.p.Root, s.d.Root, s.view.Prefill.Root, s.view.Decode.Root = nil, nil, nil, nil
		}},
		{why: "P's worker presented another prompt", answered: true, want: "prefill.prompt", twist: func(s *story) { s.p.PromptDigest = hash("x") }},
		{why: "D's worker presented another prompt", answered: true, want: "decode.prompt prefill.prompt", twist: func(s *story) { s.d.PromptDigest = hash("x") }},
		{why: "both presented another prompt", answered: true, want: "decode.prompt prefill.prompt", twist: func(s *story) {
			s.p.PromptDigest, s.d.PromptDigest = hash("x"), hash("x")
			s.view.Prefill.PromptDigest, s.view.Decode.PromptDigest = hash("x"), hash("x")
		}},
		{why: "D took pages of another lease", answered: true, want: "prefill.lease", twist: func(s *story) { s.d.SourceLeaseHash = hash("x") }},
		{why: "D's worker names another source lease", answered: true, want: "prefill.lease", twist: func(s *story) { s.view.Decode.SourceLeaseHash = hash("x") }},
		{why: "D's worker runs on another lease", answered: true, want: "decode.lease", twist: func(s *story) { s.view.Decode.LeaseHash = hash("x") }},
		{why: "D took pages of another instance", answered: true, want: "source.instance", twist: func(s *story) { s.d.SourceInstance = []byte("another-instance") }},
		{why: "P's worker names another instance", answered: true, want: "source.instance", twist: func(s *story) { s.view.Prefill.Instance = []byte("another-instance") }},
		{why: "D took pages of an old epoch", answered: true, want: "source.epoch", twist: func(s *story) { s.d.SourceEpoch = 6 }},
		{why: "P's worker names an old epoch", answered: true, want: "source.epoch", twist: func(s *story) { s.view.Prefill.Epoch = 6 }},
		{why: "P's lease is another tenant's", answered: true, want: "tenant", twist: func(s *story) { s.p.Tenant = "other" }},
		{why: "D's lease is another tenant's", answered: true, want: "tenant", twist: func(s *story) { s.d.Tenant = "other" }},
		{why: "both leases are another tenant's", answered: true, want: "tenant", twist: func(s *story) { s.p.Tenant, s.d.Tenant = "other", "other" }},
		{why: "another worker held P's lease", answered: true, want: "worker", twist: func(s *story) { s.p.Worker = "p9" }},
		{why: "another worker held D's lease", answered: true, want: "worker", twist: func(s *story) { s.d.Worker = "d9" }},
		{why: "another layout at P", answered: true, want: "layout", twist: func(s *story) { s.p.LayoutHash = hash("x") }},
		{why: "other weights at P", answered: true, want: "revision", twist: func(s *story) { s.p.ModelRevision = hash("x") }},
		{why: "another mover at D", answered: true, want: "mover", twist: func(s *story) { s.d.Mover = meshv1.Mover_MOVER_LOCAL }},
		{why: "D holds fewer pages than it needs", answered: true, want: "decode.reserved", twist: func(s *story) { s.d.Reserved = 3 }},
		{why: "another broker recorded P's half", answered: true, want: "broker", twist: func(s *story) { s.view.Admission.PrefillBroker = "bq" }},
		{why: "rows from the middle", answered: true, want: "from_token", twist: func(s *story) { s.p.FromToken = 64 }},
		{why: "rows from behind the end", answered: true, want: "from_token", twist: func(s *story) { s.p.FromToken, s.d.FromToken = 199, 199 }},
		{why: "an answer without P's verdict", answered: true, want: "verdict", twist: func(s *story) { s.view.Prefill = nil }},
		{why: "P's broker is silent", answered: true, want: "prefill.missing", twist: func(s *story) { s.p = nil }},
		{why: "D's broker is silent", answered: true, want: "decode.missing", twist: func(s *story) { s.d = nil }},
		{why: "both are silent", answered: true, want: "decode.missing prefill.missing", twist: func(s *story) { s.p, s.d = nil, nil }},
		{why: "a failed request of which nobody says anything", want: "", twist: func(s *story) { s.p, s.d = nil, nil }},
		{why: "D failed after P was done, and so did the request", want: "", twist: func(s *story) { s.d.Code = 14 }},
		{why: "an unsplit request of which the broker is silent", unsplit: true, answered: true, want: "decode.missing", twist: func(s *story) { s.d = nil }},
		{why: "an unsplit request for which pages were moved", unsplit: true, answered: true, want: "role",
			twist: func(s *story) { s.d.Role = brokerv1.Role_ROLE_DESTINATION }},
		{why: "an unsplit request that P's broker knows", unsplit: true, answered: true, want: "role", twist: func(s *story) { s.p = split(1).p }},
		{why: "an unsplit request of another tenant", unsplit: true, answered: true, want: "tenant", twist: func(s *story) { s.d.Tenant = "other" }},
		{why: "an unsplit request of another prompt", unsplit: true, answered: true, want: "decode.prompt", twist: func(s *story) { s.d.PromptDigest = hash("x") }},
	} {
		t.Run(c.why, func(t *testing.T) {
			s := split(1)
			if c.unsplit {
				s = solo(1)
			}
			c.twist(s)
			if fields, matches := run(s, c.answered); fields != c.want || c.want != "" && len(matches) > 0 {
				t.Errorf("found %q and matches %v, want %q and none", fields, matches, c.want)
			}
		})
	}
}

// Another router's admissions: half against half.
func TestHalvesWithoutAViewOfOurs(t *testing.T) {
	for _, c := range []struct {
		twist func(*story)
		want  string
	}{
		{func(*story) {}, ""},
		{func(s *story) { s.d = nil }, ""},
		{func(s *story) { s.p.Code = 11 }, "prefill.outcome"},
		{func(s *story) { s.p.Rows = 1 }, "prefill.rows"},
	} {
		core, n, s := reconcile.New(reconcile.Config{Patience: time.Minute, Open: 10}), streams{}, split(1)
		c.twist(s)
		core.Step(n.tell(start, "bp", s.p))
		if s.d != nil {
			core.Step(n.tell(start, "bd", s.d))
		}
		r := core.Step(reconcile.Tick{At: start.Add(time.Minute)})
		got := ""
		for _, f := range r.Findings {
			got += f.Field
		}
		if got != c.want || core.Open() != 0 || len(r.Matches) != 0 {
			t.Errorf("found %q, %d open, matches %v; want %q", got, core.Open(), r.Matches, c.want)
		}
	}
}

func TestHolesInABrokersRecords(t *testing.T) {
	at := func(instance string, seqs ...uint64) reconcile.Recorded {
		ev := reconcile.Recorded{At: start, Broker: "b", Instance: instance}
		for _, s := range seqs {
			ev.Records = append(ev.Records, &brokerv1.LeaseRecord{Seq: s, AdmissionId: hash(fmt.Sprint(instance, s))[:16], Role: brokerv1.Role_ROLE_SOLO})
		}
		return ev
	}
	for _, c := range []struct {
		why    string
		events []reconcile.Recorded
		want   string
	}{
		{"in order", []reconcile.Recorded{at("i", 1, 2), at("i", 3)}, ""},
		{"the first contact is in the middle", []reconcile.Recorded{at("i", 41, 42), at("i", 43)}, ""},
		{"one is missing between two messages", []reconcile.Recorded{at("i", 1), at("i", 3)}, "records.gap"},
		{"one is missing inside of the first message", []reconcile.Recorded{at("i", 41, 43)}, "records.gap"},
		{"the first after an empty beat is not 1", []reconcile.Recorded{at("i"), at("i", 2)}, "records.gap"},
		{"one comes again", []reconcile.Recorded{at("i", 1, 2), at("i", 2, 3)}, "records.order"},
		{"a new instance starts at 1", []reconcile.Recorded{at("i", 1, 2), at("j", 1, 2)}, ""},
		{"a new instance whose first records nobody saw", []reconcile.Recorded{at("i", 1, 2), at("j", 5)}, "records.gap"},
		{"an id that is none", []reconcile.Recorded{{At: start, Broker: "b", Instance: "i", Records: []*brokerv1.LeaseRecord{{Seq: 1}}}}, "records.order"},
	} {
		core, got := reconcile.New(reconcile.Default), ""
		for _, e := range c.events {
			for _, f := range core.Step(e).Findings {
				got += f.Field
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.why, got, c.want)
		}
	}
	core := reconcile.New(reconcile.Default)
	core.Step(at("i", 1, 2))
	if i, n := core.Last("b"); i != "i" || n != 2 {
		t.Errorf("Last = %s, %d; want i, 2", i, n)
	}
}

func TestASecondRecordOfAHalf(t *testing.T) {
	for code, want := range map[uint32]int{0: 1, 14: 0} { // a half that failed may be tried again under the same ticket
		core, n, s := reconcile.New(reconcile.Default), streams{}, split(1)
		s.p.Code = code
		core.Step(n.tell(start, "bp", s.p))
		if got := core.Step(n.tell(start, "bp", split(1).p)); len(got.Findings) != want {
			t.Errorf("after code %d: %v, want %d", code, got.Findings, want)
		}
	}
}

func TestOpenAdmissionsAreBounded(t *testing.T) {
	core := reconcile.New(reconcile.Config{Patience: time.Hour, Open: 8})
	overflow := 0
	for i := range 100 {
		for _, f := range core.Step(reconcile.Decided{At: start, Answered: true, View: split(i).view}).Findings {
			if f.Field != reconcile.FieldOverflow {
				t.Errorf("found %s", f.Field)
			}
			overflow++
		}
		if core.Open() > 8 {
			t.Fatalf("%d open, want at most 8", core.Open())
		}
	}
	if overflow != 92 {
		t.Errorf("%d gave way, want 92: each answered one is a finding", overflow)
	}
}

// Whatever the order in which the parties are heard, stories that agree match, each once, and nothing stays open.
func TestOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		core, n := reconcile.New(reconcile.Config{Patience: time.Minute, Open: 1000}), streams{}
		var all []func() reconcile.Event
		count := rapid.IntRange(1, 12).Draw(t, "admissions")
		for i := range count {
			s := split(i)
			if rapid.Bool().Draw(t, "solo") {
				s = solo(i)
			} else {
				all = append(all, func() reconcile.Event { return n.tell(start, "bp", s.p) })
			}
			all = append(all, func() reconcile.Event { return n.tell(start, "bd", s.d) },
				func() reconcile.Event { return reconcile.Decided{At: start, Answered: true, View: s.view} })
		}
		matches := 0
		for _, e := range rapid.Permutation(all).Draw(t, "order") {
			r := core.Step(e())
			if len(r.Findings) > 0 {
				t.Fatalf("found %v", r.Findings)
			}
			matches += len(r.Matches)
		}
		if matches != count || core.Open() != 0 {
			t.Fatalf("%d of %d match, %d stay open", matches, count, core.Open())
		}
	})
}
