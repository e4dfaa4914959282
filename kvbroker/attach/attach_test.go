package attach

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"leasehold.dev/protos/errs"
)

// helperDir makes the test binary a worker process that attaches to the broker in that directory; helperMode says what
// it does then.
const (
	helperDir  = "ATTACH_TEST_DIR"
	helperMode = "ATTACH_TEST_MODE"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperDir); dir != "" {
		os.Exit(helper(dir, os.Getenv(helperMode)))
	}
	goleak.VerifyTestMain(m)
}

// helper attaches, says so on stdout, and lives until its stdin ends.
func helper(dir, mode string) int {
	s, err := Dial(context.Background(), dir, "helper", Want{})
	if err != nil {
		os.Stdout.WriteString("refused: " + err.Error() + "\n")
		return 1
	}
	if mode == "hang up" {
		s.Close()
	}
	os.Stdout.WriteString("attached\n")
	io.Copy(io.Discard, os.Stdin)
	return 0
}

func testDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "lh") // short: a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func listen(t *testing.T, uids ...uint32) (*Listener, string) {
	t.Helper()
	dir := testDir(t)
	l, err := Listen(dir, uids)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, dir
}

func self() uint32 { return uint32(os.Geteuid()) }

func accept(t *testing.T, l *Listener) (*Conn, error) {
	t.Helper()
	p, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c, err := p.Identify()
	if err == nil {
		t.Cleanup(c.Forget)
	}
	return c, err
}

func memfd(t *testing.T, content string) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "test")
	t.Cleanup(func() { f.Close() })
	if _, err := f.WriteAt([]byte(content), 0); err != nil {
		t.Fatal(err)
	}
	return f
}

func goodOffer() Offer {
	return Offer{Broker: "b0", Instance: []byte{1}, Epoch: 7, Attach: []byte{2}, LayoutHash: []byte{3},
		ModelRevision: []byte{4}, Pages: 8, PageBytes: 4096}
}

func within(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(10 * time.Second):
		t.Fatalf("%s did not happen within 10 s", what)
	}
}

func never(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
		t.Fatalf("%s, but must not", what)
	default:
	}
}

func TestAttachPassesOfferAndDescriptors(t *testing.T) {
	l, dir := listen(t, self())
	done := make(chan error, 1)
	go func() {
		p, err := l.Accept()
		if err != nil {
			done <- err
			return
		}
		c, err := p.Identify()
		if err != nil {
			done <- err
			return
		}
		t.Cleanup(c.Forget)
		if c.Worker != "p0" || c.Peer.UID != self() || int(c.Peer.PID) != os.Getpid() {
			t.Errorf("Identify = worker %q, peer %+v, want p0 of this process", c.Worker, c.Peer)
		}
		done <- c.Grant(goodOffer(), memfd(t, "pool"), memfd(t, "tags"))
	}()
	s, err := Dial(t.Context(), dir, "p0", Want{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	defer s.abandon()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if s.Epoch != 7 || s.Pages != 8 || s.PageBytes != 4096 || s.Broker != "b0" {
		t.Errorf("offer = %+v, want the one that was granted", s.Offer)
	}
	for f, want := range map[*os.File]string{s.Pool: "pool", s.Tags: "tags"} {
		b := make([]byte, 4)
		if _, err := f.ReadAt(b, 0); err != nil || string(b) != want {
			t.Errorf("descriptor reads %q, %v, want %q", b, err, want)
		}
		if fl, _ := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0); fl&unix.FD_CLOEXEC == 0 {
			t.Errorf("descriptor of %s would survive an exec", want)
		}
	}
}

// worker starts the test binary as a worker process and grants its attach.
func worker(t *testing.T, l *Listener, dir, mode string) (*exec.Cmd, io.Closer, *Conn) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperDir+"="+dir, helperMode+"="+mode)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	c, err := accept(t, l)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Grant(goodOffer(), memfd(t, "pool"), memfd(t, "tags")); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "attached\n" {
		t.Fatalf("helper said %q, %v", line, err)
	}
	return cmd, in, c
}

func TestKilledProcessIsSeenOnItsPidfd(t *testing.T) {
	l, dir := listen(t, self())
	cmd, _, c := worker(t, l, dir, "")
	never(t, "exit seen while the process lives", c.Exited())
	never(t, "socket closed while the process lives", c.Closed())
	if !c.Alive() {
		t.Error("a process that lives is not alive")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	within(t, "exit", c.Exited())
	within(t, "end of the socket", c.Closed())
	if c.Alive() {
		t.Error("a process that was killed is alive")
	}
	c.Forget()
	if c.Alive() {
		t.Error("a process that is not watched any more is alive")
	}
}

func TestClosedSocketProvesNothingAboutTheProcess(t *testing.T) {
	l, dir := listen(t, self())
	_, stdin, c := worker(t, l, dir, "hang up")
	within(t, "end of the socket", c.Closed())
	never(t, "exit seen of a process that only hung up", c.Exited())
	stdin.Close()
	within(t, "exit", c.Exited())
}

func TestStoppedProcessIsNotGone(t *testing.T) {
	l, dir := listen(t, self())
	cmd, _, c := worker(t, l, dir, "")
	cmd.Process.Signal(unix.SIGSTOP)
	c.Hangup()
	within(t, "end of the socket", c.Closed())
	never(t, "exit seen of a stopped process", c.Exited())
	cmd.Process.Kill()
	within(t, "exit", c.Exited())
}

func TestBrokerGoneEndsTheSession(t *testing.T) {
	l, dir := listen(t, self())
	got := make(chan *Conn, 1)
	go func() {
		c, err := accept(t, l)
		if err != nil {
			t.Error(err)
		} else if err := c.Grant(goodOffer(), memfd(t, ""), memfd(t, "")); err != nil {
			t.Error(err)
		}
		got <- c
	}()
	s, err := Dial(t.Context(), dir, "d0", Want{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	defer s.abandon()
	c := <-got
	never(t, "session ended early", s.Closed())
	c.Hangup()
	within(t, "end of the session", s.Closed())
}

func TestRefusedWorkerLearnsWhy(t *testing.T) {
	for _, tt := range []struct {
		name   string
		uids   []uint32
		worker string
		why    error // by the broker after Identify
		want   errs.Kind
		text   string
	}{
		{"uid that is not on the list", []uint32{self() + 1}, "p0", nil, errs.Denied, "not allowed"},
		{"no worker id", []uint32{self()}, "", nil, errs.Invalid, "worker id of 0 bytes"},
		{"endless worker id", []uint32{self()}, strings.Repeat("p", 129), nil, errs.Invalid, "worker id of 129 bytes"},
		{"broker that drains", []uint32{self()}, "p0", errs.New(errs.Unavailable, "draining"), errs.Unavailable, "draining"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, dir := listen(t, tt.uids...)
			done := make(chan struct{})
			go func() {
				defer close(done)
				if c, err := accept(t, l); err == nil {
					c.Refuse(tt.why)
				}
			}()
			_, err := Dial(t.Context(), dir, tt.worker, Want{})
			if errs.KindOf(err) != tt.want || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("Dial = %v (%v), want %v with %q", err, errs.KindOf(err), tt.want, tt.text)
			}
			<-done
		})
	}
}

func TestIdentifyRefusesWhatIsNoRequest(t *testing.T) {
	for _, tt := range []struct {
		name string
		send func(t *testing.T, c *net.UnixConn)
		want errs.Kind
	}{
		{"nothing, then the end", func(_ *testing.T, c *net.UnixConn) { c.CloseWrite() }, errs.Unavailable},
		{"no JSON", func(_ *testing.T, c *net.UnixConn) { c.Write([]byte("hello")) }, errs.Invalid},
		{"another protocol", func(_ *testing.T, c *net.UnixConn) { c.Write([]byte(`{"protocol":2,"worker":"p"}`)) }, errs.Invalid},
		{"a message of 5000 bytes", func(_ *testing.T, c *net.UnixConn) { c.Write(make([]byte, 5000)) }, errs.Invalid},
		{"more descriptors than fit", func(t *testing.T, c *net.UnixConn) {
			fd := int(memfd(t, "").Fd())
			c.WriteMsgUnix([]byte(`{"protocol":1,"worker":"p"}`), unix.UnixRights(fd, fd, fd, fd, fd, fd), nil)
		}, errs.Invalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, dir := listen(t, self())
			c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: filepath.Join(dir, SocketName), Net: "unixpacket"})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			tt.send(t, c)
			if _, err := accept(t, l); errs.KindOf(err) != tt.want {
				t.Errorf("Identify = %v (%v), want %v", err, errs.KindOf(err), tt.want)
			}
		})
	}
}

func TestDescriptorsOfAStrangerAreClosed(t *testing.T) {
	l, dir := listen(t, self())
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: filepath.Join(dir, SocketName), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c.WriteMsgUnix([]byte(`{"protocol":1,"worker":"p"}`), unix.UnixRights(int(w.Fd())), nil)
	w.Close()
	if _, err := accept(t, l); err != nil {
		t.Fatal(err)
	}
	if n, err := r.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("Read = %d, %v, want the end: the broker keeps the other end open", n, err)
	}
}

func TestCancelledDial(t *testing.T) {
	_, dir := listen(t, self()) // nobody accepts
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("changed my mind")
	time.AfterFunc(20*time.Millisecond, func() { cancel(cause) })
	if _, err := Dial(ctx, dir, "p0", Want{}); errs.KindOf(err) != errs.Unavailable {
		t.Errorf("Dial = %v, want unavailable", err)
	}
}

func TestWantMatchesWhatIsKnown(t *testing.T) {
	o := goodOffer()
	o.TokenizerRevision, o.NumericsClass = []byte{5}, "ref-1"
	all := Want{LayoutHash: o.LayoutHash, ModelRevision: o.ModelRevision, TokenizerRevision: o.TokenizerRevision,
		NumericsClass: o.NumericsClass, PageBytes: o.PageBytes}
	for _, w := range []Want{{}, all} {
		if err := w.Match(o); err != nil {
			t.Errorf("%+v: %v", w, err)
		}
	}
	for want, change := range map[string]func(*Want){
		"layout hash is 09, broker b0 has 03":        func(w *Want) { w.LayoutHash = []byte{9} },
		"model revision is 09, broker b0 has 04":     func(w *Want) { w.ModelRevision = []byte{9} },
		"tokenizer revision is 09, broker b0 has 05": func(w *Want) { w.TokenizerRevision = []byte{9} },
		"numerics class is x, broker b0 has ref-1":   func(w *Want) { w.NumericsClass = "x" },
		"page size is 9, broker b0 has 4096":         func(w *Want) { w.PageBytes = 9 },
	} {
		for _, w := range []Want{{}, all} {
			change(&w)
			if err := w.Match(o); errs.KindOf(err) != errs.Invalid || err.Error() != want {
				t.Errorf("Match = %v, want %s", err, want)
			}
		}
	}
}
