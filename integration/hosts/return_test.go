package hosts

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"time"

	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	prefillv1 "leasehold.dev/protos/gen/leasehold/prefill/v1"
)

// TestBrokerReturns on its address as a new instance, between two requests and in the middle of a Pull: nothing of the old
// instance is honoured, and the next answer is exact.
func TestBrokerReturns(t *testing.T) {
	each(t, func(t *testing.T, m mover) {
		s := open(t, m, 1)
		s.sound(t, "at first")
		before := s.identity(t)
		s.restart(t)
		again := s.sound(t, "after a restart between two requests")

		must(t, s.prefill(0).Rate(slow))
		e := s.echo(t, 0, long)
		r := s.request(e, 0, never)
		change := r.Change
		var old *meshv1.Admission
		r.Change = func(a *meshv1.Admission) { change(a); old = a }
		w := s.start(t, r, s.prefill(0), middle)
		between := s.identity(t)
		s.restart(t)
		w.red(t, errs.Unavailable, errs.NotFound, errs.Stale)
		t.Logf("the request in whose middle broker-p0 was killed: red after %v: %v", w.took.Round(time.Millisecond), w.err)
		s.refused(t, old, e.Tokens)
		t.Logf("the next answer: %v after the first restart, %v after the second", again.Round(time.Millisecond),
			s.sound(t, "after a restart in the middle of a Pull").Round(time.Millisecond))
		s.settled(t)
		for _, other := range [][2]*brokerv1.BrokerIdentity{{before, between}, {between, s.identity(t)}} {
			if bytes.Equal(other[0].Instance, other[1].Instance) {
				t.Error("an instance has come back")
			}
		}
	})
}

func (s *stage) identity(t *testing.T) *brokerv1.BrokerIdentity {
	t.Helper()
	d, err := s.Describe(t.Context(), "broker-p0")
	must(t, err)
	return d.Identity
}

// restart kills prefill's broker and starts it on the same address.
func (s *stage) restart(t *testing.T) {
	t.Helper()
	p := s.Process("kvbroker/broker-p0")
	was, err := p.Addr(t.Context())
	must(t, err)
	must(t, first(p.Kill(), p.Start()))
	is, err := p.Addr(t.Context())
	must(t, err)
	if is.GRPC != was.GRPC {
		t.Errorf("broker-p0 is at %s, was at %s", is.GRPC, was.GRPC)
	}
	must(t, within(t.Context(), 20*time.Second, func(ctx context.Context) error {
		_, err := s.Describe(ctx, "broker-p0")
		return err
	}))
}

// refused presents the ticket of a request that ran at the old instance again: the new one leases nothing for it.
func (s *stage) refused(t *testing.T, old *meshv1.Admission, ids []int32) {
	t.Helper()
	ticket, err := s.Driver.Sign(old)
	must(t, err)
	_, err = s.Driver.Prefiller("prefill-0").Run(t.Context(), &prefillv1.RunRequest{Admission: ticket, TokenIds: ids})
	if k := errs.KindOf(errs.FromStatus(err)); err == nil || !slices.Contains([]errs.Kind{errs.Unavailable, errs.Stale, errs.Invalid}, k) {
		t.Errorf("an admission of the old instance, presented again: %v (kind %v)", err, k)
	}
}
