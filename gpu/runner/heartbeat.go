package runner

import (
	"sync/atomic"
	"time"

	"leasehold.dev/protos/errs"
)

const (
	beatEvery = 500 * time.Millisecond // at least, while the loop has nothing to do
	beatLimit = 3 * time.Second        // without a beat, outside a step
)

// heartbeat is when the loop last came round, and whether it is in a step.
type heartbeat struct {
	at   atomic.Int64 // unix ns
	step atomic.Bool
}

func (h *heartbeat) idle(now time.Time) {
	h.at.Store(now.UnixNano())
	h.step.Store(false)
}

func (h *heartbeat) begin(now time.Time) {
	h.at.Store(now.UnixNano())
	h.step.Store(true)
}

func (h *heartbeat) check(now time.Time, stepLimit time.Duration) error {
	since := now.Sub(time.Unix(0, h.at.Load())).Round(time.Millisecond)
	switch step := h.step.Load(); {
	case step && since > stepLimit:
		return errs.New(errs.Unavailable, "engine: one step has run for %v, most is %v", since, stepLimit)
	case !step && since > beatLimit:
		return errs.New(errs.Unavailable, "engine: the loop has not come round for %v, most is %v", since, beatLimit)
	}
	return nil
}
