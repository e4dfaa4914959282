package client

import (
	"context"
	"time"

	"leasehold.dev/mesh/boundary"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
)

// ProbeEvery is how often a worker asks its broker for what must be refused.
const ProbeEvery = time.Minute

// probe speaks once of a live lease as one of an older epoch. The broker must answer that it is stale; any other answer says
// that epochs are not looked at, and is an incident. It seals nothing, so that a broker that takes it is not harmed by it.
// What does not come to an answer says nothing.
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
	_, err := c.rpc.Seal(ctx, &brokerv1.SealRequest{Attach: c.token, Lease: l.ID, Epoch: l.Epoch - 1})
	if ctx.Err() != nil || unheard(err) {
		return
	}
	c.boundary.Observed(boundary.P2, boundary.StaleEpoch, "")
	if err == nil || errs.KindOf(errs.FromStatus(err)) != errs.Stale {
		c.boundary.Incident(boundary.P2, boundary.StaleEpoch, "broker "+c.info.Broker)
	}
}
