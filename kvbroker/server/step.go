package server

import (
	"fmt"
	"log/slog"
	"time"

	"leasehold.dev/kvbroker/lease"
	"leasehold.dev/protos/errs"
)

// held is what the shell keeps for a lease, until its pages are proven untouched. mu guards it.
type held struct {
	id     lease.ID
	ref    lease.Ref
	tenant string
	use    use
	since  time.Time

	timer *time.Timer
	call  *call        // the Reserve that made it
	dest  *destination // of a destination
	src   *parked      // of a source
}

// step applies ev to the table and carries out its effects.
func (b *Broker) step(ev lease.Event) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, err := b.stepLocked(ev)
	return err
}

// report is step for what has happened, wanted or not: the table refuses it only when the shell has a bug.
func (b *Broker) report(ev lease.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reportLocked(ev)
}

// reportLocked is report for callers that hold mu.
func (b *Broker) reportLocked(ev lease.Event) {
	if _, err := b.stepLocked(ev); err != nil && !b.closed {
		b.cfg.Log.Error("the table refused a report", "event", fmt.Sprintf("%T", ev), "error", err)
	}
}

// stepLocked is step for callers that hold mu.
func (b *Broker) stepLocked(ev lease.Event) ([]lease.Effect, error) {
	if b.closed {
		return nil, errs.New(errs.Unavailable, "the broker stops")
	}
	effects, err := b.table.Step(ev)
	if err != nil {
		return nil, err
	}
	for _, e := range effects {
		b.carryOut(e)
	}
	for _, h := range b.handles {
		h.wakeUp()
	}
	return effects, nil
}

func (b *Broker) carryOut(e lease.Effect) {
	switch e := e.(type) {
	case lease.WriteTags:
		for _, t := range e.Tags {
			b.pool.StoreTag(t.Page, t.Tag)
		}
	case lease.Granted: // for the caller of step
	case lease.Revoked:
		if h := b.handles[e.Attach]; h != nil {
			h.revoked(e)
		}
	case lease.EndPull:
		if h := b.held[e.Lease]; h != nil {
			h.endPull(errs.New(e.Kind, "%s", e.Reason))
		}
	case lease.Zero:
		if h := b.held[e.Lease]; h != nil && h.dest != nil {
			e.Seals = append(h.dest.seals, e.Seals...)
		}
		b.forget(e.Lease)
		if len(e.Pages) > 0 {
			b.dirty = append(b.dirty, e)
			notify(b.wake)
		}
	case lease.Record:
		b.record(e)
	case lease.Draining:
		if e.Reason != "" {
			b.cfg.Log.Warn("granting stopped", "reason", e.Reason)
		} else {
			b.cfg.Log.Info("granting again")
		}
	case lease.Ignored:
		b.cfg.Log.Debug("report changed nothing", "lease", e.Lease.String(), "reason", e.Reason)
	}
}

func (b *Broker) record(r lease.Record) {
	b.metrics.lease(r)
	b.auditLease(r)
	switch r.Kind {
	case lease.WasQuarantined:
		b.cfg.Log.Warn("lease quarantined", leaseAttrs(r)...)
	case lease.WasHandedOver: // every other end comes with a Zero, which still needs what is held
		b.forget(r.Lease)
	default:
		b.cfg.Log.Debug("lease "+r.Kind.String(), leaseAttrs(r)...)
	}
}

func leaseAttrs(r lease.Record) []any {
	return []any{slog.String("lease", r.Lease.String()), slog.String("role", r.Role.String()),
		slog.Uint64("pages", uint64(r.Pages)), slog.String("reason", r.Reason)}
}

// endPull stops the movers of the lease and tells the other side why.
func (h *held) endPull(why error) {
	if h.dest != nil {
		h.dest.fail(why)
	}
	if h.src != nil {
		h.src.lose(why)
	}
}

// forget drops what the shell keeps of a lease that has ended for good.
func (b *Broker) forget(id lease.ID) {
	h := b.held[id]
	if h == nil {
		return
	}
	h.stopTimer(b)
	if h.call != nil {
		h.call.forget()
	}
	if h.dest != nil {
		h.dest.cancel(errs.New(errs.Unavailable, "the lease has ended"))
	}
	delete(b.held, id)
	close(b.idle)
	b.idle = make(chan struct{})
}

// expireAt sets the timer that quarantines the lease. Callers hold mu.
func (h *held) expireAt(b *Broker, at time.Time) {
	b.wg.Add(1)
	h.timer = time.AfterFunc(time.Until(at), func() {
		defer b.wg.Done()
		b.report(lease.Expire{Lease: h.id})
	})
}

func (h *held) stopTimer(b *Broker) {
	if h.timer != nil && h.timer.Stop() {
		b.wg.Done()
	}
	h.timer = nil
}

// abandon ends a lease that its worker never heard of: the shell speaks for it.
func (b *Broker) abandon(h *held, why error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reportLocked(lease.Revoke{Lease: h.id, Kind: errs.KindOf(why), Reason: why.Error()})
	b.reportLocked(lease.Retired{Ref: h.ref, Reason: "the worker never had it"})
	b.spent.undo(h.use)
}

// notify wakes the reader of a channel of capacity 1.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
