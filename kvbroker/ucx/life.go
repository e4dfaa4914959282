package ucx

import "time"

// life is how a Mover finds out that its own inbox is dead. With posix and sysv all senders write to one queue in shared memory, and
// one that is killed between taking a place in it and filling that place leaves it shut for everybody, for good; UCX does not
// notice. So while there are transfers and no message comes, the Mover sends one to itself.
type life struct {
	last  time.Time // of the last message, or of the first look since there are transfers
	asked time.Time // of the probe; zero: none is on the way
	stuck bool
}

const (
	quiet   = time.Second     // without a message before a probe
	patient = 5 * time.Second // without its answer: a message to oneself needs microseconds
)

// look decides whether to ask, at the time now, after the worker was polled and had nothing. It returns how long the loop may
// sleep before the next look; below 0: until something happens.
func (c *core) look(now time.Time) time.Duration {
	l := &c.life
	switch {
	case len(c.transfers) == 0 || l.stuck:
		l.last, l.asked = time.Time{}, time.Time{}
		return -1
	case l.last.IsZero():
		l.last = now
	case !l.asked.IsZero() && now.Sub(l.asked) >= patient:
		l.stuck = true
		c.events = append(c.events, Stuck{})
	case l.asked.IsZero() && now.Sub(l.last) >= quiet:
		l.asked = now
		c.commands = append(c.commands, command{kind: probe})
	}
	return quiet
}

// heard notes that a message has come. Its time is taken at the next look: that is soon enough.
func (c *core) heard() { c.life.last, c.life.asked = time.Time{}, time.Time{} }
