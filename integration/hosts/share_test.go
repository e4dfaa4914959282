package hosts

import (
	"testing"
	"time"
)

// TestSlowLinkIsShared: on 10 Mbit/s, a tenant's short request waits for what is in the link and in the senders' buffers
// of another's big transfer, not for all of it.
func TestSlowLinkIsShared(t *testing.T) {
	s := open(t, movers[0], 1)
	must(t, s.prefill(0).Rate(slow))
	s.sound(t, "at first")
	start := time.Now()
	s.ask(t, s.echo(t, 1, short))
	alone := time.Since(start)

	e := s.echo(t, 0, big)
	w := s.start(t, s.request(e, 0, never), s.prefill(0), middle)
	start = time.Now()
	s.ask(t, s.echo(t, 1, short))
	beside := time.Since(start)
	if beside > alone+soon {
		t.Errorf("a short request took %v beside a big one, alone %v", beside, alone)
	}
	select {
	case <-w.done:
		t.Error("the big transfer was over before")
	default:
	}
	w.exact(t, e)
	t.Logf("%d tokens alone in %v, beside a transfer of %d that took %v: %v", short, alone.Round(time.Millisecond), big,
		w.took.Round(time.Millisecond), beside.Round(time.Millisecond))
	s.settled(t)
}

// big is a prompt's tokens: its pages take 5 s on a slow link.
const big = 12000
