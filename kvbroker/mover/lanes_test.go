package mover

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"leasehold.dev/mesh/rpc"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
)

// lanedPeer serves one Pull with lanes; functions of a test may take the place of either handler.
type lanedPeer struct {
	brokerv1.UnimplementedPeerServiceServer
	src   *lanedPages
	pull  func(*lanedPeer, ServerStream) error
	lane  func(*lanedPeer, ServerStream, uint32) error
	ended chan error // of the Pull
	raw   bool

	mu    sync.Mutex
	lanes *Lanes
}

func (p *lanedPeer) Pull(s grpc.BidiStreamingServer[brokerv1.PullRequest, brokerv1.PullResponse]) error {
	open, err := ReceiveOpen(s)
	if err != nil {
		return errs.ToStatus(err)
	}
	size := uint32(len(p.src.from[0]))
	var l *Lanes
	if p.raw {
		l, err = NewRawLanes(open.Lanes, p.src, size)
	} else {
		l, err = NewLanes(open.Lanes, p.src, size)
	}
	if err != nil {
		return errs.ToStatus(err)
	}
	p.mu.Lock()
	p.lanes = l
	p.mu.Unlock()
	if p.pull != nil {
		err = p.pull(p, s)
	} else {
		err = l.ServePull(s)
	}
	p.src.over.Store(true)
	p.ended <- err
	return errs.ToStatus(err)
}

func (p *lanedPeer) Lane(req *brokerv1.LaneRequest, s grpc.ServerStreamingServer[brokerv1.LaneResponse]) error {
	p.mu.Lock()
	l := p.lanes
	p.mu.Unlock()
	if l == nil || !bytes.Equal(req.LaneToken, l.Token()) {
		return errs.ToStatus(errs.New(errs.Unavailable, "no Pull has this token"))
	}
	if p.lane != nil {
		return errs.ToStatus(p.lane(p, s, req.Lane))
	}
	return errs.ToStatus(l.Serve(s, req.Lane))
}

// connect serves p and gives connections to it.
func connect(t *testing.T, p *lanedPeer, n int) []grpc.ClientConnInterface {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(append(rpc.BulkServer(), grpc.WaitForHandlers(true))...)
	brokerv1.RegisterPeerServiceServer(s, p)
	done := make(chan struct{})
	go func() { defer close(done); s.Serve(ln) }()
	t.Cleanup(func() { s.Stop(); <-done })
	var out []grpc.ClientConnInterface
	for range n {
		c, err := grpc.NewClient("passthrough:///"+ln.Addr().String(), append(rpc.BulkDial(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		out = append(out, c)
	}
	return out
}

func moveLaned(t *testing.T, p *lanedPeer, lanes int) (Moved, error) {
	t.Helper()
	conns := connect(t, p, lanes)
	s, err := Open(t.Context(), conns[0], &brokerv1.PullOpen{Pages: uint32(len(p.src.from))}, conns[1:]...)
	if err != nil {
		return Moved{}, err
	}
	_, m, err := receiveLaned(s, p.src)
	select {
	case <-p.ended:
	case <-time.After(10 * time.Second):
		t.Fatal("the sender's handler does not end")
	}
	return m, err
}

func receiveLaned(s *Stream, p *lanedPages) (*brokerv1.Completion, Moved, error) {
	defer s.Close()
	c, m, err := s.Receive(p, p.receiver())
	if err == nil {
		err = s.End()
	}
	return c, m, err
}

func TestPagesMoveOverLanes(t *testing.T) {
	for _, tt := range []struct{ n, size, lanes int }{
		{2, 64, 2}, {3, 2*maxPart + 7, 2}, {9, 3 * maxPart / 2, 3}, {200, 4096, 4}, {16, 100, 16}, {17, 100, 16},
	} {
		t.Run(fmt.Sprintf("%d of %d bytes over %d", tt.n, tt.size, tt.lanes), func(t *testing.T) {
			p := newLanedPeer(tt.n, tt.size)
			m, err := moveLaned(t, p, tt.lanes)
			if err != nil {
				t.Fatal(err)
			}
			if m.Pages != uint32(tt.n) || m.Bytes != uint64(tt.n*tt.size) || m.Took <= 0 {
				t.Errorf("moved %+v", m)
			}
			for i := range p.src.from {
				if !bytes.Equal(p.src.from[i], p.src.to[i]) {
					t.Errorf("page %d differs", i)
				}
			}
			if len(p.src.landed) != tt.n {
				t.Errorf("%d pages landed, want %d", len(p.src.landed), tt.n)
			}
		})
	}
}

func TestNoMoreLanesThanPages(t *testing.T) {
	p := newLanedPeer(2, 64)
	if _, err := moveLaned(t, p, 5); err != nil || len(p.lanes.queues) != 2 {
		t.Errorf("2 pages over 5 connections: %v", err)
	}
}

func TestALanesHarm(t *testing.T) {
	lost := errs.New(errs.Limit, "P holds 64 tokens")
	send := func(places ...uint32) func(*lanedPeer, ServerStream, uint32) error {
		return func(p *lanedPeer, s ServerStream, _ uint32) error {
			for _, place := range places {
				if err := sendPage(s, p.src, place, uint32(len(p.src.from[0]))); err != nil {
					return err
				}
			}
			return nil
		}
	}
	for _, tt := range []struct {
		name  string
		pages func(*lanedPages)
		lane  func(*lanedPeer, ServerStream, uint32) error
		want  errs.Kind
		text  string
	}{
		{"it dies", nil, func(*lanedPeer, ServerStream, uint32) error { return errs.New(errs.Unavailable, "connection reset") }, errs.Unavailable, "connection reset"},
		{"it dies after a page", nil, func(p *lanedPeer, s ServerStream, _ uint32) error {
			if err := send(1)(p, s, 1); err != nil {
				return err
			}
			return errs.New(errs.Unavailable, "connection reset")
		}, errs.Unavailable, "connection reset"},
		{"it brings a page of another lane", nil, send(0), errs.Corrupt, "page 0 over lane 1 of 2, where it does not belong"},
		{"it repeats a page", nil, send(1, 1), errs.Corrupt, "page 1 out of order, next is 3"},
		{"it leaves out a page", nil, send(1, 5), errs.Corrupt, "page 5 out of order, next is 3"},
		{"it ends before its last page", nil, send(1, 3), errs.Corrupt, "lane 1 ended before page 5 of 6"},
		{"it ends at once", nil, send(), errs.Corrupt, "lane 1 ended before page 1 of 6"},
		{"it brings a message", nil, func(_ *lanedPeer, s ServerStream, _ uint32) error { return s.SendMsg(&brokerv1.LaneResponse{}) }, errs.Corrupt, "lane 1 brings a message"},
		{"the source fails", func(p *lanedPages) { p.failNext = lost }, nil, errs.Limit, "P holds 64 tokens"},
		{"a read fails", func(p *lanedPages) { p.failRead = lost }, nil, errs.Limit, "P holds 64 tokens"},
		{"the destination fails", func(p *lanedPages) { p.failPage = lost }, nil, errs.Limit, "P holds 64 tokens"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newLanedPeer(6, 3000)
			p.lane = tt.lane
			if tt.pages != nil {
				tt.pages(p.src)
			}
			_, err := moveLaned(t, p, 2)
			if errs.KindOf(err) != tt.want || err == nil || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("Receive = %v (%v), want %v and %q", err, errs.KindOf(err), tt.want, tt.text)
			}
			if n := p.src.late.Load(); n > 0 {
				t.Errorf("%d reads of page memory after the Pull's end", n)
			}
		})
	}
}

// All pages go over the Pull's own stream, and its word Sent comes before the lane's end.
func TestSentDoesNotCountBeforeTheLanesHaveEnded(t *testing.T) {
	p := newLanedPeer(2, 100)
	sent := make(chan struct{})
	p.pull = func(p *lanedPeer, s ServerStream) error {
		attached := &brokerv1.PullAttached{LaneToken: p.lanes.Token()}
		if err := s.SendMsg(&brokerv1.PullResponse{Kind: &brokerv1.PullResponse_Attached{Attached: attached}}); err != nil {
			return err
		}
		if err := sendPage(s, p.src, 0, 100); err != nil {
			return err
		}
		if err := s.SendMsg(&brokerv1.PullResponse{Kind: &brokerv1.PullResponse_Sent{Sent: &brokerv1.PullSent{Pages: 2}}}); err != nil {
			return err
		}
		close(sent)
		return complete(s, p.src)
	}
	p.lane = func(p *lanedPeer, s ServerStream, _ uint32) error {
		<-sent
		return sendPage(s, p.src, 1, 100)
	}
	m, err := moveLaned(t, p, 2)
	if err != nil || m.Pages != 2 {
		t.Errorf("moved %+v, %v", m, err)
	}
}

func TestALaneThatNobodyMayOpen(t *testing.T) {
	p := newLanedPeer(6, 100)
	hold := make(chan struct{})
	p.src.hold = hold
	conns := connect(t, p, 3)
	lane := func(token []byte, n uint32) error {
		s, err := brokerv1.NewPeerServiceClient(conns[2]).Lane(t.Context(), &brokerv1.LaneRequest{LaneToken: token, Lane: n}, grpc.CallContentSubtype(Subtype))
		if err != nil {
			return err
		}
		return receive(s, &incoming{msg: &brokerv1.LaneResponse{}})
	}
	if err := lane(make([]byte, TokenSize), 1); errs.KindOf(err) != errs.Unavailable {
		t.Errorf("before Attached: %v", err)
	}
	s, err := Open(t.Context(), conns[0], &brokerv1.PullOpen{Pages: 6}, conns[1])
	if err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	token := bytes.Clone(p.lanes.Token())
	p.mu.Unlock()
	for _, n := range []uint32{0, 2, 1<<32 - 1} {
		if err := lane(token, n); errs.KindOf(err) != errs.Invalid {
			t.Errorf("lane %d of 2: %v", n, err)
		}
	}
	eventuallyTaken(t, p.lanes, 1)
	if err := lane(token, 1); errs.KindOf(err) != errs.Invalid {
		t.Errorf("a lane that is open: %v", err)
	}
	token[0] ^= 1
	if err := lane(token, 1); errs.KindOf(err) != errs.Unavailable {
		t.Errorf("a wrong token: %v", err)
	}
	close(hold)
	if _, m, err := receiveLaned(s, p.src); err != nil || m.Pages != 6 {
		t.Errorf("the Pull itself was harmed: %+v, %v", m, err)
	}
	<-p.ended
}

func TestLanesEndWithTheirPull(t *testing.T) {
	p := newLanedPeer(6, 100)
	p.src.hold = make(chan struct{})
	laneEnded := make(chan error, 1)
	p.lane = func(p *lanedPeer, s ServerStream, n uint32) error {
		err := p.lanes.Serve(s, n)
		laneEnded <- err
		return err
	}
	conns := connect(t, p, 2)
	s, err := Open(t.Context(), conns[0], &brokerv1.PullOpen{Pages: 6}, conns[1])
	if err != nil {
		t.Fatal(err)
	}
	eventuallyTaken(t, p.lanes, 1)
	s.Close()
	for _, c := range []chan error{laneEnded, p.ended} {
		select {
		case err := <-c:
			if errs.KindOf(err) != errs.Unavailable {
				t.Errorf("it ended with %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("the sender did not notice within 10 s")
		}
	}
}

// A lane whose connection breaks ends the Pull at both sides, though the Pull's own connection is well.
func TestABrokenLaneEndsThePull(t *testing.T) {
	p := newLanedPeer(6, 100)
	p.src.hold = make(chan struct{})
	conns := connect(t, p, 2)
	s, err := Open(t.Context(), conns[0], &brokerv1.PullOpen{Pages: 6}, conns[1])
	if err != nil {
		t.Fatal(err)
	}
	eventuallyTaken(t, p.lanes, 1)
	conns[1].(io.Closer).Close()
	if _, _, err := receiveLaned(s, p.src); errs.KindOf(err) != errs.Unavailable {
		t.Errorf("Receive = %v", err)
	}
	if err := <-p.ended; errs.KindOf(err) != errs.Unavailable {
		t.Errorf("ServePull = %v", err)
	}
}

func TestHowManyLanesThereMayBe(t *testing.T) {
	for n, want := range map[uint32]bool{0: false, 1: false, 2: true, MaxLanes: true, MaxLanes + 1: false, 1<<32 - 1: false} {
		if _, err := NewLanes(n, waiting{}, 64); (err == nil) != want || err != nil && errs.KindOf(err) != errs.Invalid {
			t.Errorf("NewLanes(%d) = %v, good: %v", n, err, want)
		}
	}
}

func eventuallyTaken(t *testing.T, l *Lanes, lane int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; {
		l.mu.Lock()
		taken := l.taken[lane]
		l.mu.Unlock()
		if taken {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("lane %d is not open within 10 s", lane)
		}
	}
}
