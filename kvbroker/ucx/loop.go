package ucx

import (
	"runtime"
	"time"
)

// spins is how often the loop asks UCX for work before it sleeps: a sleep and the peer's wake-up cost several microseconds.
const spins = 256

const (
	// smallPage is up to which size the loop digests a page itself: that is less than it takes to wake another thread, and the
	// page is in its cache.
	smallPage = 256 << 10
	// together is how many events are told at once while there is more to do: each telling wakes a thread.
	together = 16
)

// loop is the thread that UCX belongs to. It carries out commands, digests small pages, and sleeps on UCX's descriptor when
// there is nothing.
func (m *Mover) loop() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread() // or the thread would end here, and with it every child that it started with Pdeathsig
	var commands []command
	var small []digest
	for {
		m.mu.Lock()
		commands = take(m.core, commands)
		if m.cfg.PageBytes <= smallPage {
			small = append(small, m.core.digests...)
			m.core.digests = m.core.digests[:0]
		}
		m.flush(together)
		closed := m.closed
		m.mu.Unlock()
		if closed {
			break
		}
		commands = m.carryOut(commands)
		most := spins
		if len(small) > 0 {
			most = 1
		}
		n := m.w.poll(most)
		if n > 0 {
			m.tell(n)
		}
		switch {
		case len(small) > 0:
			m.digested(small[0], together)
			small = small[1:]
		case n == 0 && len(commands) == 0:
			m.sleep(time.Now())
		}
	}
	m.left = m.w.free()
}

// tell gives the core what the worker has said.
func (m *Mover) tell(n int) {
	now := time.Now()
	m.mu.Lock()
	m.core.now = now
	m.w.tell(n, m.core, m.byNumber)
	m.mu.Unlock()
}

// carryOut does what it can of the commands and returns the rest.
func (m *Mover) carryOut(commands []command) []command {
	for len(commands) > 0 {
		if c := commands[0]; c.kind == open {
			m.open(c.endpoint)
			commands = commands[1:]
			continue
		}
		n := 0
		for n < len(commands) && commands[n].kind != open {
			n++
		}
		done := m.w.submit(commands[:n])
		if commands = commands[done:]; done == 0 {
			break // no memory for now
		}
	}
	return commands
}

func (m *Mover) open(e *endpoint) {
	e.number = m.w.open(e.peer.address)
	if e.number >= 0 {
		m.endpoints[e.number] = e
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	status := int32(e.number)
	e.number = -1
	m.core.broken(e, status)
	m.flush(1)
}

func (m *Mover) byNumber(n int64) *endpoint { return m.endpoints[n] }

// sleep waits for the peer or for wake, or until it is time to look again whether anything can come at all.
func (m *Mover) sleep(now time.Time) {
	m.asleep.Store(true)
	m.mu.Lock()
	most := m.core.look(now)
	work := m.flush(1) || m.closed
	m.mu.Unlock()
	if !work {
		m.w.wait(most)
	}
	m.asleep.Store(false)
}

// wake ends sleep. A loop that is awake looks for commands before it sleeps.
func (m *Mover) wake() {
	if m.asleep.CompareAndSwap(true, false) {
		m.w.signal()
	}
}
