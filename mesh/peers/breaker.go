package peers

import (
	"context"
	"errors"
	"time"

	"github.com/sony/gobreaker/v2"

	"leasehold.dev/mesh/registry"
	"leasehold.dev/protos/errs"
)

const (
	tripAfter = 3               // failures in a row that open a breaker
	openFor   = 2 * time.Second // then one call probes the peer
)

type breaker = gobreaker.CircuitBreaker[struct{}]

func newBreaker(in registry.Instance) *breaker {
	return gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Name:         in.Service + "/" + in.ID,
		MaxRequests:  1,
		Timeout:      openFor,
		ReadyToTrip:  func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= tripAfter },
		IsExcluded:   abandoned,
		IsSuccessful: func(err error) bool { return !failure(err) },
	})
}

// abandoned: the caller's context ended. A peer that hangs is found by keepalive, which is Unavailable.
func abandoned(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

func failure(err error) bool {
	if err == nil {
		return false
	}
	k := errs.KindOf(err)
	return k == errs.Unavailable || k == errs.Internal
}

// Do calls f unless the peer's breaker is open; then the error is Unavailable. f's error moves the breaker. f may last as
// long as a stream does; its end counts.
func (p *Peer) Do(f func() error) error {
	_, err := p.breaker.Execute(func() (struct{}, error) { return struct{}{}, f() })
	if errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) {
		return errs.New(errs.Unavailable, "%s: not called, its breaker is %s", p.breaker.Name(), p.breaker.State())
	}
	return err
}

// Open reports whether the breaker refuses calls.
func (p *Peer) Open() bool { return p.breaker.State() == gobreaker.StateOpen }

// State is the breaker's state: closed, half-open or open.
func (p *Peer) State() string { return p.breaker.State().String() }
