package client

import (
	"context"
	"time"

	"leasehold.dev/mesh/boundary"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
)

// probe asks, at most once in ProbeEvery, what must be refused: it speaks of a lease that the broker takes as one of an older
// epoch. The answer must be that it is stale; any other says that epochs are not looked at, and is an incident. The words are a
// Seal of no pages, which a broker may take without harm from a lease that can be sealed. What comes to no answer says nothing.
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
	say := func(epoch uint64) error {
		_, err := c.rpc.Seal(ctx, &brokerv1.SealRequest{Attach: c.token, Lease: l.ID, Epoch: epoch})
		return err
	}
	if say(l.Epoch) != nil { // the lease has ended, or the handle has died: that is stale too
		return
	}
	err := say(l.Epoch - 1)
	if ctx.Err() != nil || unheard(err) {
		return
	}
	c.boundary.Observed(boundary.P2, boundary.StaleEpoch, "")
	if err == nil || errs.KindOf(errs.FromStatus(err)) != errs.Stale {
		c.boundary.Incident(boundary.P2, boundary.StaleEpoch, "broker "+c.info.Broker)
	}
}
