package transfer

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"leasehold.dev/kvbroker/lease"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
)

// TestSourcesGoTheirOwnWay: two futures of one source seal different second pages, and neither sees the other's.
func TestSourcesGoTheirOwnWay(t *testing.T) {
	p := newPair(t, 200, 0)
	if _, err := p.source.Step(p.bound()); err != nil {
		t.Fatal(err)
	}
	seals := []lease.PageSeal{p.compute(0), p.compute(1), p.compute(2), p.compute(3)}
	if _, err := p.source.Step(Sealed{seals[:2]}); err != nil {
		t.Fatal(err)
	}
	c := p.source.Clone()
	other := seals[2]
	other.Digest[0] ^= 1
	for s, third := range map[*Source]lease.PageSeal{p.source: seals[2], c: other} {
		if _, err := s.Step(Sealed{[]lease.PageSeal{third}}); err != nil {
			t.Fatal(err)
		}
	}
	if got := p.source.Sealed()[2]; string(got) != string(seals[2].Digest[:]) {
		t.Errorf("the original has %x, the clone's is %x", got, other.Digest)
	}
	if got := c.Sealed()[2]; string(got) != string(other.Digest[:]) {
		t.Errorf("the clone has %x, want %x", got, other.Digest)
	}
	_, _ = c.Step(Lost{})
	if c.Err() == nil || p.source.Err() != nil {
		t.Errorf("the clone was lost: %v, and the original: %v", c.Err(), p.source.Err())
	}
}

func TestReceiversGoTheirOwnWay(t *testing.T) {
	p := newPair(t, 100, 0)
	steps := []struct {
		a    Arrival
		want State
	}{
		{Part{0, 0, pageBytes / 2}, State{Offset: pageBytes / 2}},
		{Part{0, pageBytes / 2, pageBytes / 2}, State{Place: 1}},
		{Part{1, 0, pageBytes}, State{Place: 2}},
		{Sent{2}, State{Place: 2, Sent: true}},
		{Completed{&brokerv1.Completion{}}, State{Place: 2, Sent: true, Completed: true}},
		{Ended{}, State{Place: 2, Sent: true, Completed: true, Done: true}},
	}
	for _, s := range steps {
		before, c := p.receiver.State(), p.receiver.Clone()
		if _, err := c.Step(Ended{Err: errs.New(errs.Unavailable, "cut")}); err == nil || !c.State().Failed {
			t.Errorf("a clone whose stream was cut after %+v: %v, %+v", before, err, c.State())
		}
		if p.receiver.State() != before {
			t.Errorf("the original went with its clone: %+v, was %+v", p.receiver.State(), before)
		}
		if _, err := p.receiver.Step(s.a); err != nil {
			t.Fatalf("%+v: %v", s.a, err)
		}
		if d := cmp.Diff(s.want, p.receiver.State()); d != "" {
			t.Errorf("after %+v (-want +got):\n%s", s.a, d)
		}
	}
}
