package hosts

import (
	"context"
	"testing"
	"time"

	"leasehold.dev/model/canary"
	"leasehold.dev/protos/errs"
)

const (
	slow   = 10      // Mbit/s: a long prompt's pages take 1.6 s
	middle = 400_000 // bytes of a long prompt's 2,000,000

	// lost is how late a peer that has gone silent is given up: the keepalive's 10 s and 3 s, and what a busy machine adds.
	lost  = 16 * time.Second
	never = time.Minute // a deadline that ends no request here
	soon  = 2 * time.Second
)

// TestLinkDies in the middle of a Pull: the request is red without a token, the pools come back while the link is still
// dead, and once it lives the same processes answer exactly.
func TestLinkDies(t *testing.T) {
	each(t, func(t *testing.T, m mover) {
		s := open(t, m, 1)
		p, d := s.prefill(0), s.decode()
		apart := func(rule func(*Host) Rule) func() error { return func() error { return Apart(p, d, rule) } }
		all, rest := []string{"broker-d", "broker-p0"}, []string{"broker-d"}
		must(t, p.Rate(slow))
		for _, row := range []struct {
			name      string
			cut, heal func() error
			reached   []string // brokers that can be asked meanwhile
			deadline  time.Duration
			within    time.Duration
		}{
			{"resets come back", apart(Reset), apart(nil), all, never, soon},
			{"packets vanish until the deadline", apart(Swallow), apart(nil), all, 4 * time.Second, 4*time.Second + soon},
			{"packets vanish", apart(Swallow), apart(nil), all, never, lost},
			{"prefill's host is unplugged", p.Unplug, p.Plug, rest, never, lost},
		} {
			w := s.start(t, s.request(s.echo(t, 0, long), 0, row.deadline), p, middle)
			var tenant *asked
			if row.deadline == never { // the router's is another
				tenant = s.asking(t, s.echo(t, 1, long))
				moving(t, p, middle, func() error { return w.err })
			}
			cut := time.Now()
			must(t, row.cut())
			if len(row.reached) == len(all) && row.within > soon {
				s.held(t, "broker-p0", w, cut.Add(soon)) // its kernel gives the connection up 3 s after what it last sent
				s.held(t, "broker-d", w, cut.Add(row.within/2))
			}
			w.red(t, errs.Unavailable)
			red := time.Since(cut)
			if red > row.within {
				t.Errorf("%s: the request was red after %v, want at most %v", row.name, red, row.within)
			}
			if tenant != nil {
				tenant.red(t)
			}
			s.settled(t, row.reached...)
			back := time.Since(cut)
			must(t, row.heal())
			again := s.sound(t, "after: "+row.name)
			s.settled(t)
			t.Logf("%s: red after %v (%v), pools back after %v; the next answer %v after the link's return", row.name,
				red.Round(time.Millisecond), w.err, back.Round(time.Millisecond), again.Round(time.Millisecond))
		}
	})
}

// TestOnePeerGone: while one of two transfers waits for a peer that has gone silent, the other, and the next ones, are as
// fast as before.
func TestOnePeerGone(t *testing.T) {
	each(t, func(t *testing.T, m mover) {
		s := open(t, m, 2)
		must(t, first(s.prefill(0).Rate(slow), s.prefill(1).Rate(slow)))
		alone := s.pair(t, 1)
		gone := s.start(t, s.request(s.echo(t, 0, long), 0, 3*soon), s.prefill(0), middle)
		e := s.echo(t, 1, long)
		well := s.start(t, s.request(e, 1, never), s.prefill(1), middle)
		must(t, Apart(s.prefill(0), s.decode(), Swallow))
		well.exact(t, e)
		select {
		case <-gone.done:
			t.Errorf("the silent peer was given up after %v: nothing ran beside it", gone.took)
		default:
		}
		for range 3 {
			if d := s.pair(t, 1); d > 2*alone+soon {
				t.Errorf("the other pair takes %v beside a silent peer, %v without", d, alone)
			}
		}
		gone.red(t, errs.Unavailable)
		s.settled(t)
		must(t, Apart(s.prefill(0), s.decode(), nil))
		s.back(t, 0)
		t.Logf("beside a silent peer: a transfer of %d tokens in %v, alone %v", long, well.took.Round(time.Millisecond), alone.Round(time.Millisecond))
	})
}

// pair runs a long echo by a prefill worker and wants it exact.
func (s *stage) pair(t *testing.T, prefill int) time.Duration {
	t.Helper()
	e := s.echo(t, 1, long)
	w := s.start(t, s.request(e, prefill, never), s.prefill(prefill), 0)
	w.exact(t, e)
	return w.took
}

// back waits until a pair answers again, exactly; until then only errors come, as over a connection that one side has given up.
func (s *stage) back(t *testing.T, prefill int) {
	t.Helper()
	must(t, within(t.Context(), 20*time.Second, func(ctx context.Context) error {
		e := s.echo(t, 1, short)
		out, err := s.Driver.Run(ctx, s.request(e, prefill, never))
		if err != nil && len(out.Tokens) == 0 {
			return err
		}
		if v := canary.Judge(e, out.Tokens); err != nil || !v.Exact() {
			t.Errorf("once the peer is back: %v, %v", v, err)
		}
		return nil
	}))
}
