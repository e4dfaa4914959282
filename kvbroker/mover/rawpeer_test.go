package mover

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"leasehold.dev/mesh/identity"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
)

func (p *lanedPages) Bytes(place uint32) ([]byte, error) {
	if p.over.Load() {
		p.late.Add(1)
	}
	return p.from[place], p.failRead
}

// rawPeer is a lanedPeer with a listener for raw lanes.
type rawPeer struct {
	*lanedPeer
	address string
	client  *identity.Identity
	served  chan error // of each raw lane
	serve   func(p *rawPeer, c net.Conn, lane uint32) error
}

func newRawPeer(t *testing.T, n, size int, server, client *identity.Identity) *rawPeer {
	t.Helper()
	p := &rawPeer{lanedPeer: newLanedPeer(n, size), client: client, served: make(chan error, MaxLanes)}
	p.raw = true
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.address = ln.Addr().String()
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				p.served <- p.accept(t.Context(), c, server)
			})
		}
	})
	t.Cleanup(func() { ln.Close(); wg.Wait() })
	return p
}

func (p *rawPeer) accept(ctx context.Context, c net.Conn, server *identity.Identity) error {
	conn, _, _, err := server.Accept(ctx, c)
	if err != nil {
		return err
	}
	pre, err := ReadPreamble(conn)
	if err != nil {
		return err
	}
	p.mu.Lock()
	l := p.lanes
	p.mu.Unlock()
	if l == nil || !bytes.Equal(pre.Token[:], l.Token()) {
		return errs.New(errs.Unavailable, "no Pull has this token")
	}
	if p.serve != nil {
		return p.serve(p, conn, pre.Lane)
	}
	return l.ServeRaw(conn, pre.Lane)
}

func (p *rawPeer) dial(ctx context.Context) (net.Conn, error) {
	return p.client.Dial(ctx, "kvbroker", "b0", p.address)
}

func (p *rawPeer) open(t *testing.T, lanes int) (*Stream, error) {
	t.Helper()
	return OpenRaw(t.Context(), connect(t, p.lanedPeer, 1)[0], &brokerv1.PullOpen{Pages: uint32(len(p.src.from))}, lanes, p.dial)
}

func (p *rawPeer) move(t *testing.T, lanes int) (Moved, error) {
	t.Helper()
	s, err := p.open(t, lanes)
	if err != nil {
		return Moved{}, err
	}
	_, m, err := receiveLaned(s, p.src)
	p.wait(t)
	return m, err
}

// wait is for the end of ServePull.
func (p *rawPeer) wait(t *testing.T) error {
	t.Helper()
	select {
	case err := <-p.ended:
		return err
	case <-time.After(10 * time.Second):
		t.Fatal("the sender's handler does not end")
	}
	return nil
}

// certified are a broker b0 and a broker b1 of one CA.
func certified(t *testing.T) (b0, b1 *identity.Identity) {
	t.Helper()
	ca, err := identity.NewCA(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	who := func(id string) *identity.Identity {
		dir := t.TempDir()
		if err := ca.Issue(dir, "kvbroker", id); err != nil {
			t.Fatal(err)
		}
		i, err := identity.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	return who("b0"), who("b1")
}
