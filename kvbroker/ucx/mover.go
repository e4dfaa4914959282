package ucx

import (
	"cmp"
	"context"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/pagesum"
)

// Config of a Mover. Pool, PageBytes, Transports and Digest are required.
type Config struct {
	Pool       []byte // pages, mapped until Close has returned
	PageBytes  uint64
	Transports []string
	PlainTCP   bool   // allow transport tcp, in plain text: for tests
	TCPDevice  string // network interface that tcp goes over; default lo
	// Digest of the first rows of a pool page, at rest. Called by several goroutines.
	Digest    func(page, rows uint32) (sum pagesum.Digest, nonzero uint32, err error)
	Digesters int // goroutines that digest pages of more than 256 KiB; default 1
	Receives  int // most receives that are posted at a time; default 64
	Lanes     int // endpoints of a peer; default 2
}

// Mover is one worker of UCX, its thread, and those that digest. Its methods may be called from any goroutine.
type Mover struct {
	cfg     Config
	w       *worker
	address string

	mu        sync.Mutex
	core      *core
	todo      []digest
	more      sync.Cond // there is something in todo, or it is closed
	news      chan struct{}
	closed    bool
	endpoints map[int64]*endpoint // of the loop

	asleep atomic.Bool
	wg     sync.WaitGroup
	left   int // operations without an end, after the loop
}

// Open checks the transports and starts. It takes UCX's settings from nowhere but c: what the environment says of them is
// removed from it, so there is one use of UCX in a process.
//
//	Denied       a transport that is not to be used
//	Unavailable  built without ucx, or UCX lacks what it needs here
func Open(c Config) (*Mover, error) {
	if err := Missing(); err != nil {
		return nil, err
	}
	if c.PageBytes == 0 || len(c.Pool) == 0 || uint64(len(c.Pool))%c.PageBytes != 0 || c.Digest == nil {
		return nil, errs.New(errs.Invalid, "ucx: a pool of %d bytes with pages of %d, or no digest", len(c.Pool), c.PageBytes)
	}
	if err := checkTransports(c.Transports, c.PlainTCP); err != nil {
		return nil, err
	}
	setDefault(&c.Digesters, 1)
	setDefault(&c.Receives, 64)
	setDefault(&c.Lanes, 2)
	if err := cleanEnvironment(c.Transports); err != nil {
		return nil, err
	}
	w, err := newWorker(c.Pool, c.PageBytes, settings(c.Transports, cmp.Or(c.TCPDevice, loopback)))
	if err != nil {
		return nil, err
	}
	m := &Mover{cfg: c, w: w, news: make(chan struct{}, 1), endpoints: map[int64]*endpoint{}}
	m.more.L = &m.mu
	m.core = newCore(uint32(uint64(len(c.Pool))/c.PageBytes), c.PageBytes, c.Receives, c.Lanes, statusText)
	if m.address, err = w.address(); err != nil {
		w.free()
		return nil, err
	}
	for range c.Digesters {
		m.wg.Go(m.digest)
	}
	m.wg.Go(m.loop)
	return m, nil
}

func setDefault(n *int, value int) {
	if *n <= 0 {
		*n = value
	}
}

func cleanEnvironment(list []string) error {
	for _, kv := range os.Environ() {
		if k, _, _ := strings.Cut(kv, "="); strings.HasPrefix(k, "UCX_") {
			_ = os.Unsetenv(k) // fails for impossible names only
		}
	}
	for k, v := range environment(list) {
		if err := os.Setenv(k, v); err != nil {
			return errs.Mark(err, errs.Internal)
		}
	}
	return nil
}

// Address is what a sender needs to reach this Mover. It is a new one for each.
func (m *Mover) Address() []byte { return []byte(m.address) }

// Expect makes a transfer that comes in. Invalid: its numbers are wrong, or a page of it is of a transfer that is not drained.
func (m *Mover) Expect(e Expectation) error { return m.do(func(c *core) error { return c.expect(e) }) }

// Provide makes a transfer that goes out to the Mover at address, with at most window pages under way.
func (m *Mover) Provide(id ID, address []byte, window uint32) error {
	return m.do(func(c *core) error { return c.provide(id, string(address), window) })
}

// Send gives the page for a place of a transfer that goes out, each place once. The page must not change before it is Sent,
// or the transfer is Drained.
func (m *Mover) Send(id ID, place, page uint32) error {
	return m.do(func(c *core) error { return c.send(id, place, page) })
}

// End asks for the end of a transfer, good or bad, and is answered with Drained.
func (m *Mover) End(id ID) error { return m.do(func(c *core) error { return c.end(id) }) }

// Counts is what was done.
func (m *Mover) Counts() Counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.core.snapshot()
}

// Next waits for events. It is for one goroutine. The error is ctx's cause, or Unavailable after Close.
func (m *Mover) Next(ctx context.Context) ([]Event, error) {
	for {
		m.mu.Lock()
		events, closed := m.core.events, m.closed
		m.core.events = nil
		m.mu.Unlock()
		if len(events) > 0 {
			return events, nil
		}
		if closed {
			return nil, errs.New(errs.Unavailable, "ucx: closed")
		}
		select {
		case <-m.news:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// do changes the core and lets the loop carry out what comes of it.
func (m *Mover) do(f func(*core) error) error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return errs.New(errs.Unavailable, "ucx: closed")
	}
	err := f(m.core)
	work := m.flush(1)
	m.mu.Unlock()
	if work {
		m.wake()
	}
	return err
}

// flush passes on what the core answered, its events when there are so many, and says whether there is something for the
// loop. Callers hold mu.
func (m *Mover) flush(events int) bool {
	if len(m.core.digests) > 0 {
		m.todo = append(m.todo, m.core.digests...)
		m.core.digests = m.core.digests[:0]
		m.more.Broadcast()
	}
	if len(m.core.events) >= events {
		select {
		case m.news <- struct{}{}:
		default:
		}
	}
	return len(m.core.commands) > 0
}

// digest is one of the goroutines that digest large pages, off the loop's thread, so that the next pages come meanwhile.
func (m *Mover) digest() {
	for {
		m.mu.Lock()
		for len(m.todo) == 0 && !m.closed {
			m.more.Wait()
		}
		if len(m.todo) == 0 {
			m.mu.Unlock()
			return
		}
		d := m.todo[0]
		m.todo = m.todo[1:]
		m.mu.Unlock()
		if m.digested(d, 1) {
			m.wake()
		}
	}
}

// digested digests a page, tells the core, and flushes.
func (m *Mover) digested(d digest, events int) bool {
	arrived(m.cfg.Pool[uint64(d.page)*m.cfg.PageBytes:][:m.cfg.PageBytes])
	sum, nonzero, err := m.cfg.Digest(d.page, d.rows)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.core.digested(d.tag, sum, nonzero, err)
	return m.flush(events)
}

// Close ends everything and waits. Operations that have not ended by then are let go: they return how many there were. The
// process must end before their pages are anybody's.
func (m *Mover) Close() (left int) {
	m.mu.Lock()
	m.closed = true
	m.more.Broadcast()
	m.mu.Unlock()
	select {
	case m.news <- struct{}{}:
	default:
	}
	m.wake()
	m.wg.Wait()
	return m.left
}
