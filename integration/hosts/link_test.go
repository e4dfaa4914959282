package hosts

import (
	"testing"
	"time"

	"leasehold.dev/protos/errs"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

// TestEchoOverALink: an answer is exact whatever the link does to packets, and the pages have really crossed it.
func TestEchoOverALink(t *testing.T) {
	each(t, func(t *testing.T, m mover) {
		s := open(t, m, 1)
		p, d := s.prefill(0), s.decode()
		lossy := func() error { return first(p.Arriving(Lose(1)), d.Arriving(Lose(1))) }
		for _, row := range []struct {
			link   string
			shape  func() error
			tokens int
		}{
			{"clean", func() error { return nil }, long},
			{"20 ms late, each way", func() error { return p.Delay(20 * time.Millisecond) }, long},
			{"100 Mbit/s", func() error { return first(p.Delay(0), p.Rate(100)) }, long},
			{"1 % of packets lost", func() error { return first(p.Rate(0), lossy()) }, long},
			{"100 Mbit/s, 1 % lost, 20 ms late", func() error { return first(p.Rate(100), p.Delay(20*time.Millisecond)) }, short},
		} {
			must(t, row.shape())
			before, _, err := p.Bytes()
			must(t, err)
			start := time.Now()
			a := s.ask(t, s.echo(t, 0, row.tokens))
			took := time.Since(start)
			if a.Route != "split:"+m.name {
				t.Errorf("%s: route %q", row.link, a.Route)
			}
			after, _, err := p.Bytes()
			must(t, err)
			if moved, least := after-before, uint64(row.tokens/64*pageBytes); moved < least {
				t.Errorf("%s: %d bytes have left prefill's host, the pages alone are %d", row.link, moved, least)
			}
			t.Logf("%s: %d tokens in %v, first token after %v, %d bytes over the link", row.link, row.tokens, took.Round(time.Millisecond),
				a.First.Round(time.Millisecond), after-before)
		}
		s.settled(t)
	})
}

// TestNoSharedMemoryBetweenHosts: an admission that says so is refused, and takes nothing.
func TestNoSharedMemoryBetweenHosts(t *testing.T) {
	s := open(t, movers[0], 1)
	r := s.request(s.echo(t, 0, short), 0, 10*time.Second)
	r.Change = func(a *meshv1.Admission) { a.Mover = meshv1.Mover_MOVER_SHM }
	out, err := s.Driver.Run(t.Context(), r)
	if k := errs.KindOf(err); k != errs.Invalid && k != errs.Denied || len(out.Tokens) > 0 {
		t.Errorf("shared memory between two hosts: %v (kind %v), %d tokens", err, k, len(out.Tokens))
	}
	s.settled(t)
	s.sound(t, "after it")
}
