package retry

import (
	"context"
	"errors"
	"sync"

	"leasehold.dev/protos/errs"
)

// Attempts is the most that one choice gets.
const Attempts = 2

// Lost reports whether err says that a worker, a broker or a transfer was lost, and nothing else: every disagreement,
// limit, refusal and full pool is final, and so is the end of the tenant's own call.
func Lost(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	return errs.KindOf(err) == errs.Unavailable
}

// Budget is a bucket: each request puts Ratio tokens in, each retry takes one out. Safe for concurrent use.
type Budget struct {
	mu    sync.Mutex
	ratio float64
	most  float64
	have  float64
}

// NewBudget starts full with most tokens.
func NewBudget(ratio, most float64) *Budget { return &Budget{ratio: ratio, most: most, have: most} }

// Request counts one first attempt.
func (b *Budget) Request() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.have = min(b.most, b.have+b.ratio)
}

// Take takes a retry out, if there is one.
func (b *Budget) Take() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.have < 1 {
		return false
	}
	b.have--
	return true
}
