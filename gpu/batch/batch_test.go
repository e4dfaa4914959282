package batch

import (
	"testing"

	"leasehold.dev/protos/errs"
)

func TestNewRefusesLimitsThatCannotWork(t *testing.T) {
	good := Limits{StepTokens: 9, Chunk: 8, Sequences: 8, QueueRequests: 1, QueueTokens: 1, TenantRequests: 1}
	for _, tt := range []struct {
		name string
		with func(*Limits)
		ok   bool
	}{
		{"one token of room for prompts", func(*Limits) {}, true},
		{"no room for prompts beside decodes", func(l *Limits) { l.StepTokens = 8 }, false},
		{"no chunk", func(l *Limits) { l.Chunk = 0 }, false},
		{"no sequences", func(l *Limits) { l.Sequences = 0 }, false},
		{"no queue", func(l *Limits) { l.QueueRequests = 0 }, false},
		{"a queue for no token", func(l *Limits) { l.QueueTokens = -1 }, false},
		{"a queue for no tenant", func(l *Limits) { l.TenantRequests = 0 }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := good
			tt.with(&l)
			_, err := New(l)
			if (err == nil) != tt.ok {
				t.Errorf("New(%+v) = %v, want ok %v", l, err, tt.ok)
			}
			if err != nil && errs.KindOf(err) != errs.Invalid {
				t.Errorf("kind of %v is %v, want invalid", err, errs.KindOf(err))
			}
		})
	}
}

// Calls that no correct caller makes are bugs of the caller: an Internal error, and the planner is as it was.
func TestWrongCallsChangeNothing(t *testing.T) {
	for _, tt := range []struct {
		name string
		call func(*Planner) error
	}{
		{"a sequence is admitted twice", func(p *Planner) error { return p.Admit(Arrival{ID: 1, Tenant: "a", Tokens: 1}) }},
		{"a sequence without tokens", func(p *Planner) error { return p.Admit(Arrival{ID: 9, Tenant: "a"}) }},
		{"a start of nobody", func(p *Planner) error { return p.Start(9, 0, 1) }},
		{"a second start", func(p *Planner) error { return p.Start(2, 0, 1) }},
		{"a start without tokens", func(p *Planner) error { return p.Start(1, 0, 0) }},
		{"a feed of a held sequence", func(p *Planner) error { return p.Feed(1) }},
		{"a feed before the prompt is done", func(p *Planner) error { return p.Feed(2) }},
		{"a feed of nobody", func(p *Planner) error { return p.Feed(9) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := parseLimits(t, "step=160 chunk=128 seqs=8 queue=16 tokens=100000 tenant=16")
			for _, id := range []ID{1, 2} {
				if err := p.Admit(Arrival{ID: id, Tenant: "a", Tokens: 200}); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.Start(2, 0, 200); err != nil {
				t.Fatal(err)
			}
			p.Plan()
			before := p.Load()
			if err := tt.call(p); errs.KindOf(err) != errs.Internal || err == nil {
				t.Errorf("got %v, want an internal error", err)
			}
			if after := p.Load(); after != before {
				t.Errorf("load is %+v, was %+v", after, before)
			}
		})
	}
}

// A plan is made for every step: it allocates nothing once the slices have grown.
func TestPlanDoesNotAllocate(t *testing.T) {
	p := parseLimits(t, "step=160 chunk=128 seqs=8 queue=16 tokens=100000 tenant=16")
	for id := ID(1); id <= 4; id++ {
		if err := p.Admit(Arrival{ID: id, Tenant: "a", Tokens: 1}); err != nil {
			t.Fatal(err)
		}
		if err := p.Start(id, 0, 1); err != nil {
			t.Fatal(err)
		}
	}
	p.Plan()
	n := testing.AllocsPerRun(100, func() {
		for id := ID(1); id <= 4; id++ {
			if err := p.Feed(id); err != nil {
				t.Fatal(err)
			}
		}
		p.Plan()
	})
	if n != 0 {
		t.Errorf("a plan of 4 decode tokens allocates %v times", n)
	}
}
