package mover

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"leasehold.dev/kvbroker/transfer"
	"leasehold.dev/mesh/rpc"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// peer answers Pulls with a function of the test.
type peer struct {
	brokerv1.UnimplementedPeerServiceServer
	serve func(ServerStream) error
}

func (p peer) Pull(s grpc.BidiStreamingServer[brokerv1.PullRequest, brokerv1.PullResponse]) error {
	return errs.ToStatus(p.serve(s))
}

func dial(t *testing.T, serve func(ServerStream) error) *grpc.ClientConn {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(rpc.BulkServer()...)
	brokerv1.RegisterPeerServiceServer(s, peer{serve: serve})
	done := make(chan struct{})
	go func() { defer close(done); s.Serve(ln) }()
	c, err := grpc.NewClient("passthrough:///"+ln.Addr().String(), append(rpc.BulkDial(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); s.Stop(); <-done })
	return c
}

// pages is both the source and the destination of a transfer.
type pages struct {
	from, to  [][]byte
	landed    []uint32
	failNext  error
	failRead  error
	failPage  error
	unsettled error
	together  bool // pages are sealed faster than they are named
	completed *brokerv1.Completion
	next      int
}

func newPages(n int, size int) *pages {
	p := &pages{completed: &brokerv1.Completion{Pages: uint32(n)}}
	for i := range n {
		b := make([]byte, size)
		for j := range b {
			b[j] = byte(i + j*7 + j>>8)
		}
		p.from, p.to = append(p.from, b), append(p.to, make([]byte, size))
	}
	return p
}

func (p *pages) Next(context.Context) (uint32, error) {
	if p.next == len(p.from) {
		if p.failNext != nil {
			return 0, p.failNext
		}
		return 0, io.EOF
	}
	p.next++
	return uint32(p.next - 1), nil
}

func (p *pages) Read(place, off uint32, dst []byte) error {
	copy(dst, p.from[place][off:])
	return p.failRead
}

func (p *pages) Settle() error { return p.unsettled }

func (p *pages) Complete(n uint32, bytes uint64) (*brokerv1.Completion, error) {
	if want := uint64(len(p.from) * len(p.from[0])); n != uint32(len(p.from)) || bytes != want {
		return nil, errs.New(errs.Corrupt, "acknowledged %d pages of %d bytes, want %d of %d", n, bytes, len(p.from), want)
	}
	return p.completed, nil
}

func (p *pages) Page(place uint32) ([]byte, error) { return p.to[place], p.failPage }

func (p *pages) Digested(place uint32, _ transfer.Found) error { return p.Landed(place) }

func (p *pages) Copy(place uint32, from []byte) error {
	copy(p.to[place], from)
	p.landed = append(p.landed, place)
	return p.failPage
}

// Pages of the sender's pool: a page more than there are places, in the opposite order.
func (p *pages) pool() sharedPool { return sharedPool{p} }

type sharedPool struct{ p *pages }

func (s sharedPool) Pages() uint32 { return uint32(len(s.p.from)) + 1 }
func (s sharedPool) Page(i uint32) []byte {
	if i == 0 {
		return make([]byte, len(s.p.from[0]))
	}
	return s.p.from[len(s.p.from)-int(i)]
}

func (p *pages) Lend(place uint32) (uint32, bool, error) {
	return uint32(len(p.from)) - place, p.together && p.next < len(p.from), p.failRead
}

func (p *pages) Landed(place uint32) error {
	p.landed = append(p.landed, place)
	return nil
}

func (p *pages) receiver() *transfer.Receiver {
	return transfer.NewReceiver(&transfer.Expectation{Pages: uint32(len(p.from)), PageBytes: uint64(len(p.from[0]))})
}

func (p *pages) serve(s ServerStream) error {
	if _, err := ReceiveOpen(s); err != nil {
		return err
	}
	return Serve(s, p, uint32(len(p.from[0])))
}

func move(t *testing.T, p *pages, serve func(ServerStream) error) (*brokerv1.Completion, Moved, error) {
	t.Helper()
	s, err := Open(t.Context(), dial(t, serve), &brokerv1.PullOpen{})
	if err != nil {
		return nil, Moved{}, err
	}
	return receiveAll(s, p)
}

// receiveAll takes the pages, the Completion and the end.
func receiveAll(s *Stream, p *pages) (*brokerv1.Completion, Moved, error) {
	defer s.Close()
	c, m, err := s.Receive(p, p.receiver())
	if err == nil {
		err = s.End()
	}
	return c, m, err
}

func TestPagesMove(t *testing.T) {
	for _, tt := range []struct{ n, size int }{
		{1, 64}, {1, maxPart - 1}, {1, maxPart}, {1, maxPart + 1}, {2, 2*maxPart + 7}, {9, 3 * maxPart / 2},
	} {
		t.Run(fmt.Sprintf("%d of %d bytes", tt.n, tt.size), func(t *testing.T) {
			p := newPages(tt.n, tt.size)
			c, m, err := move(t, p, p.serve)
			if err != nil {
				t.Fatal(err)
			}
			if c.Pages != uint32(tt.n) || m.Pages != uint32(tt.n) || m.Bytes != uint64(tt.n*tt.size) {
				t.Errorf("completion of %d pages, moved %+v", c.Pages, m)
			}
			for i := range p.from {
				if !bytes.Equal(p.from[i], p.to[i]) {
					t.Errorf("page %d differs", i)
				}
				if p.landed[i] != uint32(i) {
					t.Errorf("landed %v, want in order", p.landed)
				}
			}
		})
	}
}

func TestReceiveFails(t *testing.T) {
	lost := errs.New(errs.Limit, "P holds 64 tokens")
	control := func(m *brokerv1.PullResponse) func(ServerStream) error {
		return func(s ServerStream) error {
			if _, err := ReceiveOpen(s); err != nil {
				return err
			}
			if err := s.SendMsg(&brokerv1.PullResponse{Kind: &brokerv1.PullResponse_Attached{Attached: &brokerv1.PullAttached{}}}); err != nil {
				return err
			}
			return s.SendMsg(m)
		}
	}
	for _, tt := range []struct {
		name  string
		pages func(*pages)
		serve func(*pages) func(ServerStream) error
		want  errs.Kind
	}{
		{"with the sender's own error, before the last page", func(p *pages) { p.failNext = lost }, nil, errs.Limit},
		{"with the sender's own error, inside a page", func(p *pages) { p.failRead = lost }, nil, errs.Limit},
		{"with the destination's own error", func(p *pages) { p.failPage = errs.New(errs.Stale, "the lease has ended") }, nil, errs.Stale},
		{"with the sender's second look", func(p *pages) { p.unsettled = errs.New(errs.Corrupt, "page 1 changed") }, nil, errs.Corrupt},
		{"when a page follows the completion", nil, func(p *pages) func(ServerStream) error {
			return func(s ServerStream) error {
				if err := p.serve(s); err != nil {
					return err
				}
				return sendPage(s, p, 0, uint32(len(p.from[0])))
			}
		}, errs.Corrupt},
		{"when a second completion comes", nil, func(p *pages) func(ServerStream) error {
			return func(s ServerStream) error {
				if err := p.serve(s); err != nil {
					return err
				}
				return s.SendMsg(&brokerv1.PullResponse{Kind: &brokerv1.PullResponse_Completion{Completion: p.completed}})
			}
		}, errs.Corrupt},
		{"when the stream ends OK at once", nil, func(*pages) func(ServerStream) error {
			return func(s ServerStream) error { _, err := ReceiveOpen(s); return err }
		}, errs.Corrupt},
		{"when nothing but Attached comes", nil, func(*pages) func(ServerStream) error {
			return control(&brokerv1.PullResponse{Kind: &brokerv1.PullResponse_Attached{}})
		}, errs.Corrupt},
		{"when Sent comes without pages", nil, func(*pages) func(ServerStream) error {
			return control(&brokerv1.PullResponse{Kind: &brokerv1.PullResponse_Sent{Sent: &brokerv1.PullSent{Pages: 2}}})
		}, errs.Corrupt},
		{"when a completion comes first", nil, func(*pages) func(ServerStream) error {
			return control(&brokerv1.PullResponse{Kind: &brokerv1.PullResponse_Completion{Completion: &brokerv1.Completion{}}})
		}, errs.Corrupt},
		{"when a part does not fit", nil, func(p *pages) func(ServerStream) error {
			return func(s ServerStream) error {
				p.from[0] = append(p.from[0], 1, 2, 3)
				return p.serve(s)
			}
		}, errs.Corrupt},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPages(2, 1000)
			if tt.pages != nil {
				tt.pages(p)
			}
			serve := p.serve
			if tt.serve != nil {
				serve = tt.serve(p)
			}
			s, err := Open(t.Context(), dial(t, serve), &brokerv1.PullOpen{})
			if err == nil {
				_, _, err = receiveAll(s, p)
			}
			if err == nil || errs.KindOf(err) != tt.want {
				t.Errorf("Receive = %v (%v), want %v", err, errs.KindOf(err), tt.want)
			}
		})
	}
}

func TestCancelIsSeenByTheSenderAtOnce(t *testing.T) {
	ended := make(chan error, 1)
	conn := dial(t, func(s ServerStream) error {
		if _, err := ReceiveOpen(s); err != nil {
			return err
		}
		err := Serve(s, waiting{}, 64)
		ended <- err
		return err
	})
	s, err := Open(t.Context(), conn, &brokerv1.PullOpen{})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	select {
	case err := <-ended:
		if errs.KindOf(err) != errs.Unavailable {
			t.Errorf("Serve = %v, want unavailable", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the sender did not notice within 10 s")
	}
}

// waiting is a source whose lease seals nothing.
type waiting struct{}

func (waiting) Next(ctx context.Context) (uint32, error)              { <-ctx.Done(); return 0, ctx.Err() }
func (waiting) Read(uint32, uint32, []byte) error                     { return nil }
func (waiting) Settle() error                                         { return nil }
func (waiting) Complete(uint32, uint64) (*brokerv1.Completion, error) { return nil, nil }

func TestLocalMovesNothing(t *testing.T) {
	p := newPages(3, 64)
	src := &localPages{pages: p}
	c, m, err := OpenLocal(t.Context(), src).Receive(nil, nil)
	if err != nil || c.Pages != 3 || m.Pages != 3 || m.Bytes != 0 {
		t.Errorf("Receive = %v, %+v, %v, want 3 pages and no byte", c, m, err)
	}
	l := OpenLocal(t.Context(), waiting{})
	l.Close()
	if _, _, err := l.Receive(nil, nil); errs.KindOf(err) != errs.Unavailable {
		t.Errorf("Receive of a closed Pull = %v, want unavailable", err)
	}
	p = newPages(1, 64)
	p.failNext = errs.New(errs.Corrupt, "gone")
	if _, _, err := OpenLocal(t.Context(), p).Receive(nil, nil); errs.KindOf(err) != errs.Corrupt {
		t.Errorf("Receive = %v, want the source's error", err)
	}
}

type localPages struct{ *pages }

func (l *localPages) Complete(n uint32, _ uint64) (*brokerv1.Completion, error) {
	return l.pages.Complete(n, uint64(len(l.from)*len(l.from[0])))
}
