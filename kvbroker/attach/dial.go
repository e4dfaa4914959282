package attach

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"leasehold.dev/protos/errs"
)

// Session is the near end of an attach. The caller closes the files when it has mapped them.
type Session struct {
	Offer
	Pool, Tags *os.File // a reader's pool can only be read, and it has no tags

	c      *net.UnixConn
	closed chan struct{}
	wg     sync.WaitGroup
}

// Dial attaches this process, as worker, to the broker whose runtime directory is dir. A broker that is not as want says
// refuses, and sends no descriptor.
func Dial(ctx context.Context, dir, worker string, want Want) (*Session, error) {
	return dial(ctx, dir, Request{Protocol: Protocol, Worker: worker, Want: want})
}

// DialReader attaches this process, as the broker of that name and instance, to another broker of the host whose pages it
// will read.
func DialReader(ctx context.Context, dir, broker string, instance []byte, want Want) (*Session, error) {
	return dial(ctx, dir, Request{Protocol: Protocol, Worker: broker, Reader: instance, Want: want})
}

// DialMover attaches this process, as a mover of that name and instance, to its broker.
func DialMover(ctx context.Context, dir, name string, instance []byte, want Want) (*Session, error) {
	return dial(ctx, dir, Request{Protocol: Protocol, Worker: name, Mover: instance, Want: want})
}

func dial(ctx context.Context, dir string, r Request) (*Session, error) {
	if err := CheckDir(dir); err != nil {
		return nil, err
	}
	var d net.Dialer
	nc, err := d.DialContext(ctx, "unixpacket", filepath.Join(dir, SocketName))
	if err != nil {
		return nil, errs.New(errs.Unavailable, "attach: %w", err)
	}
	c := nc.(*net.UnixConn)
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) })
	s, err := exchange(c, r)
	if !stop() && err == nil { // the deadline may be set on a connection that is to live on
		s.abandon()
		err = errs.New(errs.Unavailable, "attach: %w", context.Cause(ctx))
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	s.wg.Go(s.watch)
	return s, nil
}

func exchange(c *net.UnixConn, r Request) (*Session, error) {
	if err := send(c, r); err != nil {
		return nil, err
	}
	s := &Session{c: c, closed: make(chan struct{})}
	fs, err := receive(c, &s.Offer)
	if err != nil {
		return nil, err
	}
	want := 2
	if r.Reader != nil {
		want = 1
	}
	err = s.check()
	if err == nil && r.Reader == nil && len(s.Attach) == 0 {
		err = errs.New(errs.Invalid, "attach: the offer lacks the handle")
	}
	if err == nil && len(fs) != want {
		err = errs.New(errs.Invalid, "attach: %d descriptors came, want %d", len(fs), want)
	}
	if err != nil {
		closeAll(fs)
		return nil, err
	}
	s.Pool = fs[0]
	if want == 2 {
		s.Tags = fs[1]
	}
	return s, nil
}

func (s *Session) abandon() {
	s.Pool.Close()
	if s.Tags != nil {
		s.Tags.Close()
	}
}

func (s *Session) watch() {
	defer close(s.closed)
	var b [1]byte
	_, _ = s.c.Read(b[:]) // whatever ends it, it has ended
	_ = s.c.Close()
}

// Closed is closed when the broker has gone or has hung up.
func (s *Session) Closed() <-chan struct{} { return s.closed }

// Close ends the attach and waits for its watcher. The broker revokes the handle's leases.
func (s *Session) Close() error {
	_ = s.c.Close()
	s.wg.Wait()
	return nil
}
