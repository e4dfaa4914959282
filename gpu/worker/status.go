package worker

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"leasehold.dev/gpu/layout"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/fault"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

// How often a watcher's status is looked at for a change of its counts, and sent without one.
const (
	lookEvery = 100 * time.Millisecond
	sendEvery = time.Second
)

// look is the present link, and why requests cannot be served on it: "" when they can.
func (h *Host[B]) look() (l *Link[B], reason string) {
	h.mu.Lock()
	l, reason = h.link, h.reason
	drains := h.drains
	h.mu.Unlock()
	switch {
	case l == nil:
		return nil, reason
	case drains:
		return l, "it drains"
	case l.Limit < h.promise && !fault.Off(fault.LimitPrefill) && !fault.Off(fault.LimitDecode):
		return l, fmt.Sprintf("derived limit of %d tokens (%d pages of %d, context of %d) is below the promise of %d",
			l.Limit, l.Facts.PoolPages, layout.PageTokens, h.model.Config.ContextLength, h.promise)
	}
	if h.dial.Pool(l.Broker).Draining {
		return l, "broker " + l.Facts.Broker + " drains"
	}
	if err := h.runner.Healthy(); err != nil {
		return l, err.Error()
	}
	return l, ""
}

// Ready is the readiness check: nil, or the reason why not.
func (h *Host[B]) Ready(context.Context) error {
	if _, reason := h.look(); reason != "" {
		return errs.New(errs.Unavailable, "%s", reason)
	}
	return nil
}

// movers are those of a worker: what its broker has, and the handover inside of that broker. One that this program does not
// know is left out.
func movers(names []string) []meshv1.Mover {
	out := []meshv1.Mover{meshv1.Mover_MOVER_LOCAL}
	for _, n := range names {
		if m, ok := meshv1.Mover_value["MOVER_"+strings.ToUpper(n)]; ok {
			out = append(out, meshv1.Mover(m))
		}
	}
	return out
}

// Status is what the worker says of itself now. What differs between workers is the caller's.
func (h *Host[B]) Status() *meshv1.WorkerStatus {
	hash := h.engine.Layout().Hash()
	load := h.runner.Load()
	l, reason := h.look()
	s := &meshv1.WorkerStatus{
		Id: h.id, Model: h.model.Name, ModelRevision: h.model.Revision[:], TokenizerRevision: h.model.TokenizerRevision[:],
		LayoutHash: hash[:], NumericsClass: h.engine.NumericsClass(), PromisedTokens: h.promise,
		QueuedTokens: uint32(min(load.Tokens, 1<<32-1)), Sequences: uint32(load.Running),
		Ready: reason == "", Reason: reason, GuardsOn: h.GuardsOn(),
	}
	h.mu.Lock()
	f := h.fitted
	h.mu.Unlock()
	if f.Measured > 0 {
		s.WarmUp = &meshv1.WarmUp{AUs: f.A, BUs: f.B, MeasuredTokens: f.Measured}
	}
	if l != nil {
		s.Broker, s.BrokerInstance, s.LimitTokens, s.PoolPages = l.Facts.Broker, l.Facts.Instance, l.Limit, l.Facts.PoolPages
		s.FreePages = h.dial.Pool(l.Broker).Free
		s.Host, s.Fabric, s.Movers = l.Facts.Host, l.Facts.Fabric, movers(l.Facts.Movers)
	}
	return s
}

// Watch sends status at once, after every change, and at least each second, until ctx or stop ends it.
func (h *Host[B]) Watch(ctx context.Context, stop <-chan struct{}, status func() *meshv1.WorkerStatus, send func(*meshv1.WorkerStatus) error) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var last *meshv1.WorkerStatus
	var sent time.Time
	for {
		h.mu.Lock()
		changed := h.changed
		h.mu.Unlock()
		if s := status(); time.Since(sent) >= sendEvery || !proto.Equal(s, last) {
			if err := send(s); err != nil {
				return err
			}
			last, sent = s, time.Now()
		}
		select {
		case <-tick.C:
		case <-changed:
		case <-stop:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
