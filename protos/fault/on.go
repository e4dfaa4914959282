//go:build faults

package fault

import (
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Enabled says whether this is a faults build.
const Enabled = true

// rule is an armed point.
type rule struct {
	action Action
	after  int // passings that it lets be
	times  int // 0: for ever
	wait   time.Duration
	n      int
	free   chan struct{} // closed when it is disarmed
	acted  int
}

// kit is the process's switches and points.
type kit struct {
	mu     sync.Mutex
	off    map[Guard]bool
	rules  map[Point]*rule
	passed map[Point]int
	fired  map[Point]int
	signal func(syscall.Signal) // to the own process
}

func newKit() *kit {
	return &kit{off: map[Guard]bool{}, rules: map[Point]*rule{}, passed: map[Point]int{}, fired: map[Point]int{},
		signal: signalSelf}
}

// signalSelf sends s to the calling thread, which takes it before it goes on. A signal to the process is taken by any thread,
// and this one would run on, past what the point is before.
func signalSelf(s syscall.Signal) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_, _, _ = syscall.RawSyscall(syscall.SYS_TGKILL, uintptr(os.Getpid()), uintptr(syscall.Gettid()), uintptr(s))
}

var own = newKit()

// Off says whether a guard is turned off in this process.
func Off(g Guard) bool {
	own.mu.Lock()
	defer own.mu.Unlock()
	return own.off[g]
}

// AnyOff says whether any guard of this process is turned off.
func AnyOff() bool { return len(own.turnedOff()) > 0 }

// TurnedOff is the guards of this process that are off.
func TurnedOff() []Guard { return own.turnedOff() }

// At passes a point and returns what the caller is to do wrong there.
func At(p Point) Action { return own.at(p) }

// N is the number that the point was armed with.
func N(p Point) int {
	own.mu.Lock()
	defer own.mu.Unlock()
	if r := own.rules[p]; r != nil {
		return r.n
	}
	return 0
}

// Armed says whether a point is armed.
func Armed(p Point) bool {
	own.mu.Lock()
	defer own.mu.Unlock()
	return own.rules[p] != nil
}

func (k *kit) turnedOff() []Guard {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []Guard
	for g, off := range k.off {
		if off {
			out = append(out, g)
		}
	}
	slices.Sort(out)
	return out
}

// due is the rule that acts at this passing, if any.
func (k *kit) due(p Point) *rule {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.passed[p]++
	r := k.rules[p]
	if r == nil {
		return nil
	}
	if r.after > 0 {
		r.after--
		return nil
	}
	if r.times > 0 && r.acted == r.times {
		return nil
	}
	r.acted++
	k.fired[p]++
	return r
}

func (k *kit) at(p Point) Action {
	r := k.due(p)
	if r == nil {
		return None
	}
	switch r.action {
	case Delay:
		t := time.NewTimer(r.wait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-r.free:
		}
	case Hold:
		<-r.free
	case Pause:
		k.signal(syscall.SIGSTOP)
	case Kill:
		k.signal(syscall.SIGKILL)
	default:
		return r.action
	}
	return None
}

func (k *kit) arm(p Point, r *rule) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.drop(p)
	r.free = make(chan struct{})
	k.rules[p] = r
}

func (k *kit) disarm(p Point) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.drop(p)
}

// drop is for callers that hold mu.
func (k *kit) drop(p Point) {
	if r := k.rules[p]; r != nil {
		close(r.free)
		delete(k.rules, p)
	}
}

func (k *kit) turn(g Guard, off bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.off[g] = off
}
