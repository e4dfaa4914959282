package client

import (
	"context"
	"time"

	"leasehold.dev/mesh/boundary"
	"leasehold.dev/protos/errs"
)

// probe asks, at most once in ProbeEvery, what must be refused: it speaks of a lease that the broker takes as one of an older
// epoch. The answer must be that it is stale; any other says that epochs are not looked at, and is an incident. l is one that
// can be sealed, so that a broker may take the question without harm. What comes to no answer says nothing.
func (c *Client) probe(ctx context.Context, l *Lease) {
	now := time.Now()
	c.mu.Lock()
	due := now.Sub(c.probed) >= ProbeEvery
	if due {
		c.probed = now
	}
	c.mu.Unlock()
	if !due {
		return
	}
	if l.ask(ctx, l.Epoch) != nil { // the lease has ended, or the handle has died: that is stale too
		return
	}
	err := l.ask(ctx, l.Epoch-1)
	if ctx.Err() != nil || unheard(err) {
		return
	}
	c.boundary.Observed(boundary.P2, boundary.StaleEpoch, "")
	if err == nil || errs.KindOf(err) != errs.Stale {
		c.boundary.Incident(boundary.P2, boundary.StaleEpoch, "broker "+c.info.Broker)
	}
}
