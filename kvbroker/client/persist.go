package client

import (
	"context"
	"time"

	"leasehold.dev/protos/errs"
)

// Proofs that pages are let go of are said until the broker has heard them: it must not learn them from anything else.
const (
	sayTimeout = 5 * time.Second // of one try, also when its caller has given up
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
)

// bounded is for words that are said whether the caller still waits or not. Closing the connection ends them.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), sayTimeout)
}

// unheard says that err may be of the way to the broker, or pass: another try may fare better. Other kinds are the
// broker's own answer, which would be the same again.
func unheard(err error) bool {
	if err == nil {
		return false
	}
	switch errs.KindOf(errs.FromStatus(err)) {
	case errs.Unavailable, errs.Exhausted, errs.Internal:
		return true
	}
	return false
}

// persist says something in the background until it is heard, or the handle has died. Close waits for it.
func (c *Client) persist(say func(context.Context) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead != nil {
		return
	}
	c.wg.Go(func() {
		pause := time.NewTimer(0)
		defer pause.Stop()
		for wait := firstPause; ; wait = min(2*wait, lastPause) {
			select {
			case <-pause.C:
			case <-c.done:
				return
			}
			ctx, cancel := bounded(context.Background())
			err := say(ctx)
			cancel()
			if !unheard(err) {
				return
			}
			pause.Reset(wait)
		}
	})
}
