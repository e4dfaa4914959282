package mover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"leasehold.dev/mesh/identity"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
)

func TestPagesMoveOverRawLanes(t *testing.T) {
	b0, b1 := certified(t)
	for mode, ids := range map[string][2]*identity.Identity{"plain": {identity.Plain(), identity.Plain()}, "tls": {b0, b1}} {
		for _, tt := range []struct{ n, size, lanes int }{
			{1, 64, 1}, {2, 64, 2}, {3, 2*maxPart + 7, 2}, {9, 3 * maxPart / 2, 1}, {200, 4096, 2}, {1, 64, 2}, {16, 100, 16}, {17, 1, 3},
		} {
			t.Run(fmt.Sprintf("%s: %d of %d bytes over %d", mode, tt.n, tt.size, tt.lanes), func(t *testing.T) {
				p := newRawPeer(t, tt.n, tt.size, ids[0], ids[1])
				m, err := p.move(t, tt.lanes)
				if err != nil {
					t.Fatal(err)
				}
				if m.Pages != uint32(tt.n) || m.Bytes != uint64(tt.n*tt.size) || m.Took <= 0 || len(p.src.landed) != tt.n {
					t.Errorf("moved %+v, %d landed", m, len(p.src.landed))
				}
				for i := range p.src.from {
					if !bytes.Equal(p.src.from[i], p.src.to[i]) {
						t.Errorf("page %d differs", i)
					}
				}
			})
		}
	}
}

func TestARawLaneThatNobodyMayOpen(t *testing.T) {
	p := newRawPeer(t, 6, 100, identity.Plain(), identity.Plain())
	hold := make(chan struct{})
	p.src.hold = hold
	s, err := p.open(t, 2)
	if err != nil {
		t.Fatal(err)
	}
	eventuallyTaken(t, p.lanes, 0)
	eventuallyTaken(t, p.lanes, 1)
	good := Preamble{Lane: 1, Token: [TokenSize]byte(p.lanes.Token())}
	wrong := good
	wrong.Token[31] ^= 1
	bad := func(at int) []byte { b := good.bytes(); b[at] ^= 1; return b }
	third := good
	third.Lane = 2
	for _, tt := range []struct {
		name string
		b    []byte
		want errs.Kind
	}{
		{"another magic", bad(0), errs.Invalid},
		{"another version", bad(4), errs.Invalid},
		{"a wrong token", wrong.bytes(), errs.Unavailable},
		{"a lane that is open", good.bytes(), errs.Invalid},
		{"a lane that is not there", third.bytes(), errs.Invalid},
		{"a preamble cut short", good.bytes()[:20], errs.Unavailable},
		{"nothing", nil, errs.Unavailable},
	} {
		c, err := p.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c.Write(tt.b)
		if len(tt.b) < preambleSize {
			c.(*net.TCPConn).CloseWrite()
		}
		if err := <-p.served; errs.KindOf(err) != tt.want || err == nil {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
		if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("%s: it is answered", tt.name)
		}
		c.Close()
	}
	if err := p.lanes.Serve(nil, 1); errs.KindOf(err) != errs.Invalid {
		t.Errorf("a gRPC lane of a Pull with raw ones: %v", err)
	}
	close(hold)
	if _, m, err := receiveLaned(s, p.src); err != nil || m.Pages != 6 {
		t.Errorf("the Pull itself was harmed: %+v, %v", m, err)
	}
	p.wait(t)
}

func TestARawLaneThatCannotBeOpened(t *testing.T) {
	b0, b1 := certified(t)
	for _, tt := range []struct {
		name string
		dial func(p *rawPeer) RawDialer
	}{
		{"nobody listens", func(*rawPeer) RawDialer {
			return func(context.Context) (net.Conn, error) { return nil, errors.New("connection refused") }
		}},
		{"the server is another broker", func(p *rawPeer) RawDialer {
			return func(ctx context.Context) (net.Conn, error) { return b1.Dial(ctx, "kvbroker", "b9", p.address) }
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newRawPeer(t, 6, 100, b0, b1)
			_, err := OpenRaw(t.Context(), connect(t, p.lanedPeer, 1)[0], &brokerv1.PullOpen{Pages: 6}, 2, tt.dial(p))
			if errs.KindOf(err) != errs.Unavailable {
				t.Errorf("OpenRaw = %v, want unavailable", err)
			}
			if err := p.wait(t); err == nil {
				t.Error("the sender's Pull ended well")
			}
		})
	}
}

// A receiver that stops reading leaves the sender in a Write, which the end of the Pull ends at once; then no page is read.
func TestTheEndOfAPullEndsAWrite(t *testing.T) {
	b0, b1 := certified(t)
	for name, ids := range map[string][2]*identity.Identity{"plain": {identity.Plain(), identity.Plain()}, "tls": {b0, b1}} {
		t.Run(name, func(t *testing.T) {
			p := newRawPeer(t, 40, 1<<20, ids[0], ids[1])
			s, err := p.open(t, 2)
			if err != nil {
				t.Fatal(err)
			}
			eventuallyTaken(t, p.lanes, 0)
			eventuallyTaken(t, p.lanes, 1)
			stuck(t, p.lanes)
			start := time.Now()
			s.Close()
			if err := p.wait(t); errs.KindOf(err) != errs.Unavailable {
				t.Errorf("ServePull = %v", err)
			}
			if took := time.Since(start); took > 2*time.Second {
				t.Errorf("the sender's Write ended after %v", took)
			}
			for range 2 {
				if err := <-p.served; errs.KindOf(err) != errs.Unavailable {
					t.Errorf("ServeRaw = %v", err)
				}
			}
			if n := p.src.late.Load(); n > 0 {
				t.Errorf("%d reads of page memory after the Pull's end", n)
			}
		})
	}
}

// stuck waits until somebody writes, and goes on to for long enough that it is a wait for the receiver.
func stuck(t *testing.T, l *Lanes) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(10 * time.Second)
	for held := 0; held < 20; {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("no Write waits within 10 s")
		}
		if l.reads.TryLock() {
			l.reads.Unlock()
			held = 0
		} else {
			held++
		}
	}
}

// A receiver whose lane breaks ends the Pull at the sender, which waits for nothing else.
func TestAReceiversBrokenRawLane(t *testing.T) {
	p := newRawPeer(t, 6, 100, identity.Plain(), identity.Plain())
	p.src.hold = make(chan struct{})
	s, err := p.open(t, 2)
	if err != nil {
		t.Fatal(err)
	}
	eventuallyTaken(t, p.lanes, 1)
	s.lanes.raw[1].Close()
	if err := p.wait(t); errs.KindOf(err) != errs.Unavailable {
		t.Errorf("ServePull = %v", err)
	}
	if _, _, err := receiveLaned(s, p.src); errs.KindOf(err) != errs.Unavailable {
		t.Errorf("Receive = %v", err)
	}
}
