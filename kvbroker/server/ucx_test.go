//go:build ucx

package server

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"leasehold.dev/kvbroker/attach"
	"leasehold.dev/kvbroker/client"
	"leasehold.dev/kvbroker/lease"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/proof"
)

func init() { movers = append(movers, ucx) } // every test of a mover is one of this too

// midway is a Pull by ucx whose first page has arrived and whose second has not been sealed.
func midway(t *testing.T) (k *pair, r *request, dst, src *client.Lease) {
	t.Helper()
	k = newPair(t, ucx)
	r = newRequest(t, 130, 4, ucx)
	dst, src = r.decode(t, k.d), r.prefill(t, k.p)
	if err := src.Seal(t.Context(), []client.Seal{compute(t, k.p, src, r.ids, 0, 64)}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "page 0 staged", func() bool { return k.b1.states()[lease.Staged] == 1 })
	return k, r, dst, src
}

func (n *node) quarantined() uint32 { return n.states()[lease.Quarantine] }

// TestADeadMoverFailsItsPullsAndNothingElse: at either side, the request fails, the pages come back, and the next mover
// process works.
func TestADeadMoverFailsItsPullsAndNothingElse(t *testing.T) {
	for _, tt := range []struct {
		name string
		of   func(*pair) *moverProcess
	}{
		{"at P", func(k *pair) *moverProcess { return k.m0 }},
		{"at D", func(k *pair) *moverProcess { return k.m1 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k, _, dst, src := midway(t)
			m := tt.of(k)
			m.end()
			_, err := dst.AwaitOwned(t.Context())
			wantKind(t, "AwaitOwned after the mover's death", err, errs.Unavailable)
			wantKind(t, "Ready without a mover", m.n.Ready(t.Context()), errs.Unavailable)
			retire(t, src, false)
			retire(t, dst, false)
			k.baseline(t)
			startMover(t, m.n)
			again := newRequest(t, 130, 4, ucx)
			dst, src = again.decode(t, k.d), again.prefill(t, k.p)
			fill(t, k.p, src, again)
			if _, err := dst.AwaitOwned(t.Context()); err != nil {
				t.Errorf("after a new mover process: %v", err)
			}
			retire(t, src, true)
			retire(t, dst, true)
			k.baseline(t)
		})
	}
}

// TestAStoppedMoverKeepsItsPages: nobody gets a page of a transfer whose mover process has not let go of it, until that
// goes on, or is gone.
func TestAStoppedMoverKeepsItsPages(t *testing.T) {
	for _, tt := range []struct {
		name string
		of   func(*pair) *moverProcess
		then func(*testing.T, *moverProcess)
	}{
		{"at D, until it goes on", func(k *pair) *moverProcess { return k.m1 }, func(t *testing.T, m *moverProcess) { m.signal(t, syscall.SIGCONT) }},
		{"at D, until it is gone", func(k *pair) *moverProcess { return k.m1 }, func(_ *testing.T, m *moverProcess) { m.end() }},
		{"at P, until it goes on", func(k *pair) *moverProcess { return k.m0 }, func(t *testing.T, m *moverProcess) { m.signal(t, syscall.SIGCONT) }},
		{"at P, until it is gone", func(k *pair) *moverProcess { return k.m0 }, func(_ *testing.T, m *moverProcess) { m.end() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k, _, dst, src := midway(t)
			m := tt.of(k)
			m.pause(t)
			retire(t, src, false)
			_, err := dst.AwaitOwned(t.Context())
			wantKind(t, "AwaitOwned", err, errs.Unavailable)
			retire(t, dst, false)
			other := k.b0
			if m.n == k.b0 {
				other = k.b1
			}
			other.baseline(t) // by then this side would have given its pages back too
			if m.n.quarantined() == 0 {
				t.Errorf("pages of a transfer that is not drained are in states %v, want some in quarantine", m.n.states())
			}
			tt.then(t, m)
			m.n.baseline(t)
		})
	}
}

func TestOneMoverAtATime(t *testing.T) {
	k := newPair(t, ucx)
	second := &moverProcess{n: k.b0}
	if err := second.tryStart(t); err == nil {
		t.Error("a second mover process is taken")
	}
	if err := k.b0.Ready(t.Context()); err != nil {
		t.Errorf("the first is not ready any more: %v", err)
	}
}

// pause stops the process, and returns when it has stopped.
func (p *moverProcess) pause(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGSTOP)
	eventually(t, "the process is stopped", func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		return err == nil && strings.Contains(string(b), ") T ")
	})
}

func (p *moverProcess) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// tryStart attaches and says how that ended.
func (p *moverProcess) tryStart(t *testing.T) error {
	t.Helper()
	hash := small.Hash()
	s, err := attach.DialMover(t.Context(), p.n.dir, "second", proof.NewID(), attach.Want{LayoutHash: hash[:]})
	if err == nil {
		s.Pool.Close()
		s.Tags.Close()
		s.Close()
	}
	return err
}

// TestAMoverIsASuspectOfALateWrite: it has the pool mapped, so a page that was written late is given to nobody before its end.
func TestAMoverIsASuspectOfALateWrite(t *testing.T) {
	k := newPair(t, ucx)
	k.p.Close()
	eventually(t, "the worker's handle is dead", func() bool {
		k.b0.mu.Lock()
		defer k.b0.mu.Unlock()
		for _, h := range k.b0.handles {
			if !h.hungUp {
				return false
			}
		}
		return true
	})
	k.b0.mu.Lock()
	clear(k.b0.handles) // of this very process, which does not exit
	k.b0.mu.Unlock()
	if !k.b0.withhold(3, lease.ID{}, "test") {
		t.Fatal("nobody is suspected")
	}
	k.m0.end()
	eventually(t, "the page is free of suspects", func() bool {
		k.b0.mu.Lock()
		defer k.b0.mu.Unlock()
		return len(k.b0.withheld) == 0
	})
}
