// Package retry paces attempts to reach a registry that is away.
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff doubles from Min to Max, each wait shortened by up to a half at random, so that a registry that returns is not
// met by everybody at once. It is used by one goroutine.
type Backoff struct {
	Min, Max time.Duration
	next     time.Duration
}

// Delay is the next wait.
func (b *Backoff) Delay() time.Duration {
	d := max(b.next, b.Min)
	b.next = min(2*d, b.Max)
	return d - rand.N(d/2+1)
}

// Reset starts again from Min, after a success.
func (b *Backoff) Reset() { b.next = 0 }

// Wait waits for Delay, or until ctx ends; then it returns ctx's error.
func (b *Backoff) Wait(ctx context.Context) error {
	t := time.NewTimer(b.Delay())
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
