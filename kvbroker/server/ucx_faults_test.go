//go:build ucx && faults

package server

import (
	"testing"

	"leasehold.dev/kvbroker/client"
	"leasehold.dev/kvbroker/lease"
	"leasehold.dev/protos/errs"
)

// restart gives a broker another mover process, with faults.
func (k *pair) restart(t *testing.T, m *moverProcess, lines ...string) *moverProcess {
	t.Helper()
	m.end()
	eventually(t, "the broker has noticed", func() bool { return m.n.Ready(t.Context()) != nil })
	return startMover(t, m.n, lines...)
}

// TestFaultsOfAMoverAreRed: whatever a mover process does wrong, decode gets nothing, and the pages come back.
func TestFaultsOfAMoverAreRed(t *testing.T) {
	for _, tt := range []struct {
		name string
		of   func(*pair) *moverProcess
		line string
		want errs.Kind
	}{
		{"a page's offer is lost", (*pair).moverP, "arm point:mover/offer drop times=1", errs.Corrupt},
		{"a page is offered twice", (*pair).moverP, "arm point:mover/offer duplicate times=1", errs.Corrupt},
		{"a page is offered as another", (*pair).moverP, "arm point:mover/offer truncate times=1", errs.Corrupt},
		{"a page is offered with another length", (*pair).moverP, "arm point:mover/offer corrupt times=1", errs.Corrupt},
		{"a page comes with another bit", (*pair).moverD, "arm point:mover/read corrupt times=1", errs.Corrupt},
		{"half of a page comes", (*pair).moverD, "arm point:mover/read truncate times=1", errs.Corrupt},
		{"a landing is told with another digest", (*pair).moverD, "arm point:mover/landed corrupt times=1", errs.Corrupt},
		{"a landing is not told", (*pair).moverD, "arm point:mover/landed drop times=1", errs.Corrupt},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := newPair(t, ucx)
			k.restart(t, tt.of(k), tt.line)
			r := newRequest(t, 200, 4, ucx)
			dst, src := r.decode(t, k.d), r.prefill(t, k.p)
			fill(t, k.p, src, r)
			_, err := dst.AwaitOwned(t.Context())
			wantKind(t, "AwaitOwned", err, tt.want)
			retire(t, src, false)
			retire(t, dst, false)
			k.baseline(t)
		})
	}
}

func (k *pair) moverP() *moverProcess { return k.m0 }
func (k *pair) moverD() *moverProcess { return k.m1 }

// TestALostDrainedKeepsPages: at either side, until the process is gone.
func TestALostDrainedKeepsPages(t *testing.T) {
	for _, tt := range []struct {
		name string
		of   func(*pair) *moverProcess
	}{{"at P", (*pair).moverP}, {"at D", (*pair).moverD}} {
		t.Run(tt.name, func(t *testing.T) {
			k := newPair(t, ucx)
			m := k.restart(t, tt.of(k), "arm point:mover/drained drop")
			r := newRequest(t, 130, 4, ucx)
			dst, src := r.decode(t, k.d), r.prefill(t, k.p)
			eventually(t, "a page staged", func() bool {
				if k.b1.states()[lease.Staged] > 0 {
					return true
				}
				_ = src.Seal(t.Context(), []client.Seal{compute(t, k.p, src, r.ids, 0, 64)})
				return false
			})
			retire(t, src, false)
			_, err := dst.AwaitOwned(t.Context())
			wantKind(t, "AwaitOwned", err, errs.Unavailable)
			retire(t, dst, false)
			other := k.b0
			if m.n == k.b0 {
				other = k.b1
			}
			other.baseline(t)
			if m.n.quarantined() == 0 {
				t.Errorf("pages whose Drained was lost are in states %v, want some in quarantine", m.n.states())
			}
			m.end()
			m.n.baseline(t)
		})
	}
}
