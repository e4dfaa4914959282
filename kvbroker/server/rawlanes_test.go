package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"

	"leasehold.dev/kvbroker/client"
	"leasehold.dev/mesh/identity"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

// testWire is a Wire with certificates.
type testWire struct{ *identity.Identity }

func (w testWire) Accept(ctx context.Context, c net.Conn) (net.Conn, string, bool, error) {
	conn, _, name, err := w.Identity.Accept(ctx, c)
	return conn, name, true, err
}

func (w testWire) Dial(ctx context.Context, name, address string) (net.Conn, error) {
	return w.Identity.Dial(ctx, "kvbroker", name, address)
}

func issue(t *testing.T, ca *identity.CA, name string) testWire {
	t.Helper()
	dir := t.TempDir()
	if err := ca.Issue(dir, "kvbroker", name); err != nil {
		t.Fatal(err)
	}
	i, err := identity.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return testWire{i}
}

func newCA(t *testing.T) *identity.CA {
	t.Helper()
	ca, err := identity.NewCA(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// rawLanes makes a broker serve raw lanes, and pull over so many.
func rawLanes(t *testing.T, ca *identity.CA, lanes int) option {
	return func(c *Config) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		c.Data, c.DataAddress, c.RawLanes, c.PullLanes = ln, ln.Addr().String(), true, lanes
		c.Wire = issue(t, ca, c.Name)
	}
}

func (n *node) openRawLanes() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.Broker.raw.open - n.Broker.raw.opening
}

func TestPagesArriveVerifiedOverRawLanes(t *testing.T) {
	const m = meshv1.Mover_MOVER_GRPC
	ca := newCA(t)
	for _, tt := range []struct {
		tokens uint32
		lanes  int
	}{{2, 1}, {450, 1}, {130, 3}, {450, 3}} {
		t.Run(fmt.Sprintf("%d tokens over %d", tt.tokens, tt.lanes), func(t *testing.T) {
			k := newPair(t, m, rawLanes(t, ca, tt.lanes))
			r := newRequest(t, tt.tokens, 20, m)
			dst := r.decode(t, k.d)
			want := min(tt.lanes, int(r.moved()))
			eventually(t, "the raw lanes are open", func() bool { return k.b0.openRawLanes() == want })
			src := r.prefill(t, k.p)
			fin := fill(t, k.p, src, r)
			o, err := dst.AwaitOwned(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			checkOwned(t, k, r, o, fin)
			if err := dst.AwaitSettled(t.Context()); err != nil {
				t.Errorf("AwaitSettled = %v", err)
			}
			retire(t, src, true)
			retire(t, dst, true)
			k.baseline(t)
			eventually(t, "no raw lane is open", func() bool { return k.b0.openRawLanes() == 0 && k.b0.openLanes() == 0 })
		})
	}
}

func TestRawLanesEndWithTheirPull(t *testing.T) {
	const m = meshv1.Mover_MOVER_GRPC
	for name, end := range map[string]func(t *testing.T, k *pair, src *client.Lease){
		"P gives up":                      func(t *testing.T, _ *pair, src *client.Lease) { retire(t, src, false) },
		"the Pull's connection breaks":    func(_ *testing.T, k *pair, _ *client.Lease) { k.fleet.conns["b0"].Close() },
		"P's broker serves no calls more": func(_ *testing.T, k *pair, _ *client.Lease) { k.b0.peers.Stop() },
	} {
		t.Run(name, func(t *testing.T) {
			k := newPair(t, m, rawLanes(t, newCA(t), 3))
			r := newRequest(t, 450, 4, m)
			dst := r.decode(t, k.d)
			src := r.prefill(t, k.p)
			for place := range uint32(4) {
				if err := src.Seal(t.Context(), []client.Seal{compute(t, k.p, src, r.ids, place, 64)}); err != nil {
					t.Fatal(err)
				}
			}
			end(t, k, src)
			_, err := dst.AwaitOwned(t.Context())
			wantKind(t, "AwaitOwned", err, errs.Unavailable)
			_ = src.Retire(t.Context(), false, "", nil) // it may have ended before
			retire(t, dst, false)
			k.baseline(t)
			eventually(t, "no raw lane is open", func() bool { return k.b0.openRawLanes() == 0 })
		})
	}
}

// safeBuffer is a log that is read while it is written.
type safeBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func TestARawLaneIsRefused(t *testing.T) {
	const m = meshv1.Mover_MOVER_GRPC
	var log safeBuffer
	ca := newCA(t)
	k := newPair(t, m, rawLanes(t, ca, 2), func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	r := newRequest(t, 450, 4, m)
	dst := r.decode(t, k.d)
	eventually(t, "the raw lanes are open", func() bool { return k.b0.openRawLanes() == 2 })
	var token laneToken
	k.b0.mu.Lock()
	for token = range k.b0.lanes {
	}
	k.b0.mu.Unlock()
	preamble := func(lane uint32, token laneToken) []byte {
		b := binary.LittleEndian.AppendUint32([]byte("LHRL\x02\x00\x00\x00"), lane)
		return append(b, token[:]...)
	}
	wrong := token
	wrong[31] ^= 1
	for _, tt := range []struct {
		name string
		who  testWire
		say  []byte
		kind errs.Kind
	}{
		{"with a wrong token", issue(t, ca, "b1"), preamble(1, wrong), errs.Unavailable},
		{"that is open", issue(t, ca, "b1"), preamble(1, token), errs.Invalid},
		{"that is not there", issue(t, ca, "b1"), preamble(2, token), errs.Invalid},
		{"of another protocol", issue(t, ca, "b1"), []byte("GET / HTTP/1.1\r\nHost: b0\r\nAccept: everything there is\r\n"), errs.Invalid},
		{"by another broker of the mesh", issue(t, ca, "b9"), preamble(1, token), errs.Denied},
		{"by a broker of another mesh", issue(t, newCA(t), "b1"), preamble(1, token), errs.Denied},
	} {
		before := k.b0.count(t, MetricRefused, "kind", tt.kind.String())
		raw, err := net.Dial("tcp", k.b0.cfg.DataAddress)
		if err != nil {
			t.Fatal(err)
		}
		raw.Close() // one that says nothing is no trouble
		c, err := tt.who.Dial(t.Context(), "b0", k.b0.cfg.DataAddress)
		if err == nil {
			c.Write(tt.say)
			if b, _ := io.ReadAll(c); len(b) > 0 {
				t.Errorf("a lane %s: it is answered with %d bytes", tt.name, len(b))
			}
			c.Close()
		}
		eventually(t, "a lane "+tt.name+" is counted", func() bool { return k.b0.count(t, MetricRefused, "kind", tt.kind.String()) > before })
	}
	src := r.prefill(t, k.p)
	fill(t, k.p, src, r)
	if _, err := dst.AwaitOwned(t.Context()); err != nil {
		t.Errorf("the Pull itself was harmed: %v", err)
	}
	log.mu.Lock()
	defer log.mu.Unlock()
	if s := log.Bytes(); !bytes.Contains(s, []byte("raw lane ended badly")) || bytes.Contains(s, token[:8]) ||
		bytes.Contains(s, fmt.Appendf(nil, "%x", token[:8])) {
		t.Errorf("the log has no refusal, or a token: %s", s)
	}
}

func TestHowPagesComeIsNotChangedOnTheWay(t *testing.T) {
	const m = meshv1.Mover_MOVER_GRPC
	ca := newCA(t)
	t.Run("a peer whose data address does not answer fails the Pull", func(t *testing.T) {
		k := newPair(t, m, rawLanes(t, ca, 1), func(c *Config) {
			if c.Name == "b0" {
				c.Data.Close()
			}
		})
		r := newRequest(t, 130, 4, m)
		_, err := k.d.Reserve(t.Context(), client.Reservation{Admission: r.s, Role: brokerv1.Role_ROLE_DESTINATION, TokenIDs: r.ids, Pages: r.life()})
		wantKind(t, "Reserve", err, errs.Unavailable)
		k.baseline(t)
	})
	t.Run("a peer that serves no raw lanes is asked for none", func(t *testing.T) {
		k := newPair(t, m, rawLanes(t, ca, 1), func(c *Config) {
			if c.Name == "b0" {
				c.Data.Close()
				c.Data, c.DataAddress = nil, ""
			}
		})
		r := newRequest(t, 130, 4, m)
		dst := r.decode(t, k.d)
		fill(t, k.p, r.prefill(t, k.p), r)
		if _, err := dst.AwaitOwned(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
