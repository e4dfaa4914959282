package fleet

import (
	"log/slog"
	"testing"

	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/router/scripted"
)

func TestChangedIsAboutWhatAWorkerCanHold(t *testing.T) {
	m := scripted.New(t)
	f := New(m.Prefill, m.Decode, slog.New(slog.DiscardHandler))
	k := key{"decode", "d"}
	f.heard(k, m.Status("d", "b"))
	for _, c := range []struct {
		what   string
		change func(*meshv1.WorkerStatus)
		tells  bool
	}{
		{"nothing", func(*meshv1.WorkerStatus) {}, false},
		{"free pages", func(s *meshv1.WorkerStatus) { s.FreePages-- }, false},
		{"a lower limit", func(s *meshv1.WorkerStatus) { s.LimitTokens-- }, true},
		{"another promise", func(s *meshv1.WorkerStatus) { s.PromisedTokens++ }, true},
		{"another broker", func(s *meshv1.WorkerStatus) { s.BrokerInstance = scripted.Hash("x")[:16] }, true},
		{"not ready", func(s *meshv1.WorkerStatus) { s.Ready = false }, true},
	} {
		f.heard(k, m.Status("d", "b"))
		changed := f.Changed()
		s := m.Status("d", "b")
		c.change(s)
		f.heard(k, s)
		told := false
		select {
		case <-changed:
			told = true
		default:
		}
		if told != c.tells {
			t.Errorf("%s: told %v, want %v", c.what, told, c.tells)
		}
	}
	changed := f.Changed()
	f.Lost("decode", "d")
	select {
	case <-changed:
	default:
		t.Error("a lost worker is no change")
	}
}
