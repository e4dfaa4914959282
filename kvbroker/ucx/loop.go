package ucx

import (
	"runtime"
	"time"
)

// spins is how often the loop asks UCX for work before it sleeps: a sleep and the peer's wake-up cost several microseconds.
const spins = 256

// loop is the thread that UCX belongs to. It carries out commands, and sleeps on UCX's descriptor when there is nothing.
func (m *Mover) loop() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread() // or the thread would end here, and with it every child that it started with Pdeathsig
	var commands []command
	for {
		m.mu.Lock()
		commands = take(m.core, commands)
		m.flush()
		closed := m.closed
		m.mu.Unlock()
		if closed {
			break
		}
		commands = m.carryOut(commands)
		if n := m.w.poll(spins); n > 0 {
			now := time.Now()
			m.mu.Lock()
			m.core.now = now
			m.w.tell(n, m.core, m.byNumber)
			m.flush()
			m.mu.Unlock()
			continue
		}
		if len(commands) == 0 {
			m.sleep(time.Now())
		}
	}
	m.left = m.w.free()
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
	m.flush()
}

func (m *Mover) byNumber(n int64) *endpoint { return m.endpoints[n] }

// sleep waits for the peer or for wake, or until it is time to look again whether anything can come at all.
func (m *Mover) sleep(now time.Time) {
	m.asleep.Store(true)
	m.mu.Lock()
	most := m.core.look(now)
	work := m.flush() || m.closed
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
