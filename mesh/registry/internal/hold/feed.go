package hold

import (
	"sync"
	"time"

	"leasehold.dev/mesh/registry"
)

// Feed is the channel of a watch. Its methods are safe for concurrent use.
type Feed struct {
	ch chan []registry.Instance

	mu     sync.Mutex
	keep   keeper
	sent   []registry.Instance
	any    bool // something was sent
	closed bool
	timer  *time.Timer
}

// New makes a feed that holds instances for span after contact returned.
func New(span time.Duration) *Feed {
	return &Feed{ch: make(chan []registry.Instance, 1), keep: keeper{span: span}}
}

// C gives the newest set, after each change; it is closed by Close.
func (f *Feed) C() <-chan []registry.Instance { return f.ch }

// Lost says that the registry cannot be asked: the last set stands.
func (f *Feed) Lost() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keep.lose(time.Now())
}

// Heard says what the registry's set is.
func (f *Feed) Heard(set []registry.Instance) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	now := time.Now()
	f.keep.hear(now, set)
	f.send(now)
	if f.timer != nil {
		f.timer.Stop()
	}
	if wait := f.keep.until.Sub(now); wait > 0 {
		f.timer = time.AfterFunc(wait, f.expire)
	}
}

func (f *Feed) expire() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.send(time.Now())
	}
}

// send replaces a set that nobody read yet. There is one sender at a time, so the channel has room.
func (f *Feed) send(now time.Time) {
	set := f.keep.show(now)
	if f.any && same(set, f.sent) {
		return
	}
	f.sent, f.any = set, true
	select {
	case <-f.ch:
	default:
	}
	f.ch <- set
}

// Close ends the feed.
func (f *Feed) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	f.closed = true
	if f.timer != nil {
		f.timer.Stop()
	}
	close(f.ch)
}
