package fleet

import (
	"log/slog"
	"testing"
	"time"

	"leasehold.dev/router/scripted"
)

func TestAStatusHoldsForThreeSeconds(t *testing.T) {
	m := scripted.New(t)
	f := New(m.Prefill, m.Decode, slog.New(slog.DiscardHandler))
	at := time.Unix(1700000000, 0)
	f.now = func() time.Time { return at }
	m.NewDecode(m.Status("d", "b"))
	for m.Decode.Get("d") == nil {
		changed := m.Decode.Changed()
		if m.Decode.Get("d") == nil {
			<-changed
		}
	}
	f.heard(key{"decode", "d"}, m.Status("d", "b"))
	for _, c := range []struct {
		after time.Duration
		up    bool
	}{{0, true}, {Stale, true}, {Stale + 1, false}, {time.Hour, false}} {
		f.now = func() time.Time { return at.Add(c.after) }
		if w := f.Snapshot().Decode[0]; w.Up != c.up {
			t.Errorf("after %v: up %v, want %v (%q)", c.after, w.Up, c.up, w.Reason)
		}
	}
}
