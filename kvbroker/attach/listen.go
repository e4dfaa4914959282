package attach

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"leasehold.dev/protos/errs"
)

// requestTimeout is how long a connected process has to say who it is. It is local and has nothing to compute.
const requestTimeout = 5 * time.Second

// Listener accepts workers.
type Listener struct {
	ln   *net.UnixListener
	uids []uint32
}

// Listen makes the attach socket in dir, which must pass [CheckDir], for processes of the given uids.
func Listen(dir string, uids []uint32) (*Listener, error) {
	if err := CheckDir(dir); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, SocketName)
	if err := removeStale(path); err != nil {
		return nil, err
	}
	ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, errs.New(errs.Unavailable, "attach: %w", err)
	}
	return &Listener{ln: ln, uids: uids}, nil
}

// ListenWorker makes the stream socket of the WorkerService in dir, with the same rules.
func ListenWorker(dir string) (net.Listener, error) {
	if err := CheckDir(dir); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, WorkerName)
	if err := removeStale(path); err != nil {
		return nil, err
	}
	return net.Listen("unix", path)
}

// Close stops accepting. Accepted connections live on.
func (l *Listener) Close() error { return l.ln.Close() }

// Accept waits for the next process. The connection is not yet known to be good: see [Pending.Identify]. The error is
// net.ErrClosed after Close.
func (l *Listener) Accept() (*Pending, error) {
	c, err := l.ln.AcceptUnix()
	if err != nil {
		return nil, err
	}
	return &Pending{c: c, uids: l.uids}, nil
}

// Pending is a process that has connected and has not been checked.
type Pending struct {
	c    *net.UnixConn
	uids []uint32
}

// Identify checks who connected, takes its pidfd and reads its request. It may wait as long as a request may take, so
// the caller gives it a goroutine. On error the peer has been told and the connection is closed.
func (p *Pending) Identify() (*Conn, error) {
	c, err := p.identify()
	if err != nil {
		refuse(p.c, err)
	}
	return c, err
}

func (p *Pending) identify() (*Conn, error) {
	// The request first: a socket that is closed over unread data swallows the refusal.
	var r Request
	_ = p.c.SetReadDeadline(time.Now().Add(requestTimeout))
	extra, err := receive(p.c, &r)
	closeAll(extra)
	if err != nil {
		return nil, err
	}
	_ = p.c.SetReadDeadline(time.Time{})
	peer, err := allowed(p.c, p.uids)
	if err != nil {
		return nil, err
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	pidfd, err := pidfdOf(p.c, peer.PID)
	if err != nil {
		return nil, errs.New(errs.Denied, "attach: no pidfd of process %d: %w", peer.PID, err)
	}
	k := &Conn{Worker: r.Worker, Reader: r.Reader, Mover: r.Mover, Want: r.Want, Peer: peer, c: p.c, pidfd: pidfd, exited: make(chan struct{}), closed: make(chan struct{})}
	k.wg.Go(k.watchProcess)
	k.wg.Go(k.watchSocket)
	return k, nil
}

func refuse(c *net.UnixConn, why error) {
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	_ = send(c, Offer{Protocol: Protocol, Error: why.Error(), Kind: uint8(errs.KindOf(why))}) // it may be gone already
	_ = c.Close()
}

// Conn is one attached process.
type Conn struct {
	Worker string
	Reader []byte // of a broker that reads: its instance
	Mover  []byte // of a mover process: its instance
	Want   Want
	Peer   Peer

	c      *net.UnixConn
	pidfd  *os.File
	exited chan struct{}
	closed chan struct{}
	once   sync.Once
	wg     sync.WaitGroup
}

// Grant sends the offer and the descriptors: pool and tags to a worker, the pool, opened read-only, to a reader.
func (k *Conn) Grant(o Offer, files ...*os.File) error {
	o.Protocol = Protocol
	_ = k.c.SetWriteDeadline(time.Now().Add(requestTimeout))
	return send(k.c, o, files...)
}

// Refuse tells the process why it gets nothing, and closes the socket.
func (k *Conn) Refuse(why error) { refuse(k.c, why) }

// Closed is closed when the socket has ended; the process may live on.
func (k *Conn) Closed() <-chan struct{} { return k.closed }

// Exited is closed when the process is gone. It never is when Forget came first.
func (k *Conn) Exited() <-chan struct{} { return k.exited }

// Alive looks whether the process is there now; Exited may follow a little later.
func (k *Conn) Alive() bool {
	raw, err := k.pidfd.SyscallConn()
	if err != nil {
		return false
	}
	alive := false
	err = raw.Control(func(fd uintptr) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		alive = err == nil && n == 0
	})
	return err == nil && alive
}

// Hangup closes the socket: the worker sees its end. The process is watched on.
func (k *Conn) Hangup() { _ = k.c.Close() }

// Forget closes socket and pidfd and waits for the watchers: nobody will learn any more whether the process is gone.
func (k *Conn) Forget() {
	k.once.Do(func() {
		_ = k.c.Close()
		k.pidfd.Close()
	})
	k.wg.Wait()
}

// watchSocket waits for the end of a socket on which a worker has nothing more to say.
func (k *Conn) watchSocket() {
	defer close(k.closed)
	var b [1]byte
	_, _ = k.c.Read(b[:]) // whatever ends it, it has ended
	_ = k.c.Close()
}

// watchProcess parks on the pidfd in the runtime's poller: it is readable once the process has exited.
func (k *Conn) watchProcess() {
	raw, err := k.pidfd.SyscallConn()
	if err != nil {
		return
	}
	gone := false
	err = raw.Read(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, _ := unix.Poll(p, 0)
		gone = n > 0 && p[0].Revents&unix.POLLIN != 0
		return gone
	})
	if err == nil && gone {
		close(k.exited)
	}
}

// pidfdOf returns a pidfd of the process that connected c.
func pidfdOf(c *net.UnixConn, pid int32) (*os.File, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd, serr := -1, error(nil)
	if err := raw.Control(func(s uintptr) {
		fd, serr = unix.GetsockoptInt(int(s), unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	}); err != nil {
		return nil, err
	}
	if errors.Is(serr, unix.ENOPROTOOPT) { // before Linux 6.5; the peer waits for our answer, so its pid is still its own
		fd, serr = unix.PidfdOpen(int(pid), 0)
	}
	if serr != nil {
		return nil, serr
	}
	unix.CloseOnExec(fd)
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("pidfd: %w", err)
	}
	return os.NewFile(uintptr(fd), "pidfd"), nil
}
