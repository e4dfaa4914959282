package peers

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	"leasehold.dev/mesh/registry"
	"leasehold.dev/protos/errs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is a registry whose sets the test sends. The real ones are tested against their own contract; here it is the
// order and time of the sets that matters.
type script struct{ sets chan []registry.Instance }

func (s script) Register(context.Context, registry.Instance, func(context.Context) error) (func(context.Context) error, error) {
	return nil, errors.New("not asked for")
}

func (s script) Watch(ctx context.Context, service string) (<-chan []registry.Instance, error) {
	if err := registry.ValidateService(service); err != nil {
		return nil, err
	}
	out := make(chan []registry.Instance)
	go func() {
		defer close(out)
		for {
			select {
			case set := <-s.sets:
				select {
				case out <- set:
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, nil
}

// nowhere dials without a network; an address that starts with "bad" cannot be dialled at all.
func nowhere(in registry.Instance) (*grpc.ClientConn, error) {
	if strings.HasPrefix(in.Address, "bad") {
		return nil, errs.New(errs.Invalid, "bad address")
	}
	return grpc.NewClient("passthrough:///"+in.Address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return nil, errors.New("nowhere") }))
}

// of makes a set from words such as d1 or d2@other.
func of(words string) []registry.Instance {
	var set []registry.Instance
	for w := range strings.FieldsSeq(words) {
		id, addr, found := strings.Cut(w, "@")
		if !found {
			addr = "127.0.0.1:7000"
		}
		set = append(set, registry.Instance{Service: "decode", ID: id, Address: addr})
	}
	return set
}

func names(ps []*Peer) string {
	var s []string
	for _, p := range ps {
		s = append(s, p.ID)
	}
	return strings.Join(s, " ")
}

// watched runs f in a bubble with a set that follows send.
func watched(t *testing.T, f func(t *testing.T, s *Set, send func(words string))) {
	synctest.Test(t, func(t *testing.T) {
		r := script{make(chan []registry.Instance)}
		s, err := Watch(t.Context(), r, "decode", nowhere)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		f(t, s, func(words string) {
			r.sets <- of(words)
			synctest.Wait()
		})
	})
}

func closed(p *Peer) bool { return p.Conn.GetState() == connectivity.Shutdown }

func TestSetFollowsTheRegistry(t *testing.T) {
	watched(t, func(t *testing.T, s *Set, send func(string)) {
		if len(s.All()) != 0 || s.Get("d1") != nil {
			t.Error("peers before the first set")
		}
		for _, c := range []string{"d1 d2", "d2", "d1 d2 d3", ""} {
			changed := s.Changed()
			send(c)
			select {
			case <-changed:
			default:
				t.Errorf("Changed did not fire for %q", c)
			}
			if got := names(s.All()); got != c {
				t.Errorf("All = %q, want %q", got, c)
			}
		}
		send("d1 d2")
		if p := s.Get("d2"); p == nil || p.ID != "d2" || s.Get("d3") != nil {
			t.Errorf("Get(d2) = %v, Get(d3) = %v", p, s.Get("d3"))
		}
	})
}

func TestAPeerThatStaysKeepsConnectionAndBreaker(t *testing.T) {
	watched(t, func(t *testing.T, s *Set, send func(string)) {
		send("d1")
		before := s.Get("d1")
		for range tripAfter {
			do(before, errs.New(errs.Unavailable, "x"))
		}
		send("d1 d2")
		after := s.Get("d1")
		if after.Conn != before.Conn || !after.Open() {
			t.Error("a change elsewhere renewed the peer")
		}
	})
}

func TestAPeerThatLeftIsClosedAfterTheGrace(t *testing.T) {
	watched(t, func(t *testing.T, s *Set, send func(string)) {
		send("d1 d2")
		d1, d2 := s.Get("d1"), s.Get("d2")
		send("d2")
		time.Sleep(grace - 1)
		synctest.Wait()
		if closed(d1) {
			t.Error("closed before the grace was over: running calls were cut off")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if !closed(d1) || closed(d2) {
			t.Errorf("after the grace: d1 closed %v, d2 closed %v", closed(d1), closed(d2))
		}
	})
}

func TestAPeerThatComesBackKeepsItsConnection(t *testing.T) {
	watched(t, func(t *testing.T, s *Set, send func(string)) {
		send("d1")
		before := s.Get("d1")
		for range tripAfter {
			do(before, errs.New(errs.Unavailable, "x"))
		}
		send("")
		time.Sleep(grace / 2)
		send("d1")
		time.Sleep(2 * grace)
		synctest.Wait()
		after := s.Get("d1")
		if after.Conn != before.Conn || closed(after) {
			t.Error("the connection was given up")
		}
		if after.Open() {
			t.Error("the breaker is open, though the peer's self-check passes again")
		}
	})
}

func TestAnotherAddressIsAnotherPeer(t *testing.T) {
	watched(t, func(t *testing.T, s *Set, send func(string)) {
		send("d1@127.0.0.1:7001")
		before := s.Get("d1")
		send("d1@127.0.0.1:7002")
		after := s.Get("d1")
		if after.Conn == before.Conn || after.Address != "127.0.0.1:7002" {
			t.Error("the old connection was kept for a new address")
		}
		time.Sleep(grace)
		synctest.Wait()
		if !closed(before) || closed(after) {
			t.Errorf("after the grace: old closed %v, new closed %v", closed(before), closed(after))
		}
	})
}

func TestMetaIsRenewedOnTheSameConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := script{make(chan []registry.Instance)}
		s, err := Watch(t.Context(), r, "decode", nowhere)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		in := of("d1")
		r.sets <- in
		synctest.Wait()
		before := s.Get("d1")
		in = of("d1")
		in[0].Meta = map[string]string{"broker": "kv-1"}
		r.sets <- in
		synctest.Wait()
		if after := s.Get("d1"); after.Meta["broker"] != "kv-1" || after.Conn != before.Conn {
			t.Errorf("meta %v", after.Meta)
		}
		if before.Meta != nil {
			t.Error("a peer that was read earlier changed")
		}
	})
}

func TestAPeerThatCannotBeDialledIsLeftOut(t *testing.T) {
	watched(t, func(t *testing.T, s *Set, send func(string)) {
		send("d1@bad d2")
		if got := names(s.All()); got != "d2" {
			t.Errorf("All = %q, want d2", got)
		}
	})
}

func TestCloseClosesAll(t *testing.T) {
	watched(t, func(t *testing.T, s *Set, send func(string)) {
		send("d1 d2")
		d1, d2 := s.Get("d1"), s.Get("d2")
		send("d2")
		s.Close()
		s.Close()
		if !closed(d1) || !closed(d2) || len(s.All()) != 0 {
			t.Errorf("after Close: d1 closed %v, d2 closed %v, %d peers", closed(d1), closed(d2), len(s.All()))
		}
	})
}

func TestTheEndOfTheContextClosesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := script{make(chan []registry.Instance)}
		s, err := Watch(ctx, r, "decode", nowhere)
		if err != nil {
			t.Fatal(err)
		}
		r.sets <- of("d1")
		synctest.Wait()
		d1 := s.Get("d1")
		cancel()
		synctest.Wait()
		if !closed(d1) {
			t.Error("the connection outlived the context")
		}
		s.Close()
	})
}

func TestWatchRefusesABadName(t *testing.T) {
	if _, err := Watch(t.Context(), script{}, "", nowhere); errs.KindOf(err) != errs.Invalid {
		t.Errorf("Watch of no service = %v, want invalid", err)
	}
}

func TestAPeerThatComesBackIsDialledAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dials atomic.Int32
		r := script{make(chan []registry.Instance)}
		s, err := Watch(t.Context(), r, "decode", func(in registry.Instance) (*grpc.ClientConn, error) {
			return grpc.NewClient("passthrough:///"+in.Address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(), grpc.WithIdleTimeout(0),
				grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
					dials.Add(1)
					return nil, errors.New("nowhere")
				}))
		})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		r.sets <- of("d1")
		time.Sleep(time.Hour) // by now the connection waits for minutes between attempts
		r.sets <- nil
		synctest.Wait()
		before := dials.Load()
		r.sets <- of("d1")
		synctest.Wait()
		if got := dials.Load(); got != before+1 {
			t.Errorf("%d dials as the peer came back, want 1", got-before)
		}
	})
}
