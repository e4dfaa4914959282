package hosts

import (
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { os.Exit(Main(m.Run)) }

func network(t *testing.T, hosts int) *Network {
	t.Helper()
	n, err := New(hosts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// at runs f in a host's namespace: what it opens stays there.
func at[T any](t *testing.T, h *Host, f func() (T, error)) T {
	t.Helper()
	type result struct {
		v   T
		err error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // and the thread ends with the goroutine
		var r result
		ns, err := os.Open(names + "/" + h.Name)
		if err == nil {
			err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
			ns.Close()
		}
		if r.err = err; err == nil {
			r.v, r.err = f()
		}
		done <- r
	}()
	r := <-done
	must(t, r.err)
	return r.v
}

// echo answers every byte on h, and is a connection to it from the switch.
func echo(t *testing.T, h *Host) net.Conn {
	t.Helper()
	l := at(t, h, func() (net.Listener, error) { return net.Listen("tcp", h.IP+":0") })
	done := make(chan struct{})
	go func() {
		defer close(done)
		if c, err := l.Accept(); err == nil {
			io.Copy(c, c)
			c.Close()
		}
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	t.Cleanup(func() {
		if c != nil {
			c.Close()
		}
		l.Close()
		<-done
	})
	must(t, err)
	return c
}

// roundTrip sends n bytes to an echo and takes them back.
func roundTrip(t *testing.T, c net.Conn, n int) time.Duration {
	t.Helper()
	start := time.Now()
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(make([]byte, n))
		sent <- err
	}()
	_, err := io.CopyN(io.Discard, c, int64(n))
	must(t, err)
	must(t, <-sent)
	return time.Since(start)
}

func TestDelay(t *testing.T) {
	h := network(t, 1).Hosts[0]
	must(t, h.Delay(20*time.Millisecond))
	c := echo(t, h)
	for range 3 {
		if d := roundTrip(t, c, 1); d < 40*time.Millisecond || d > 120*time.Millisecond {
			t.Errorf("there and back in %v, with 20 ms each way", d)
		}
	}
	roundTrip(t, c, 1<<20)
	must(t, h.Delay(0))
	if d := roundTrip(t, c, 1); d > 30*time.Millisecond {
		t.Errorf("there and back in %v without a delay", d)
	}
}

func TestRate(t *testing.T) {
	h := network(t, 1).Hosts[0]
	must(t, h.Rate(10))
	c := echo(t, h)
	if d := roundTrip(t, c, 500_000); d < 350*time.Millisecond || d > 2*time.Second {
		t.Errorf("500,000 bytes in %v by 10 Mbit/s, want 0.4 s and something", d)
	}
	sent, received, err := h.Bytes()
	if err != nil || sent < 500_000 || received < 500_000 || sent > 700_000 {
		t.Errorf("the link has carried %d and %d bytes, %v", sent, received, err)
	}
	must(t, h.Rate(0))
	if d := roundTrip(t, c, 500_000); d > 300*time.Millisecond {
		t.Errorf("500,000 bytes in %v without a limit", d)
	}
}

func TestLoss(t *testing.T) {
	h := network(t, 1).Hosts[0]
	must(t, h.Arriving(Lose(20)))
	in := at(t, h, func() (net.PacketConn, error) { return net.ListenPacket("udp", h.IP+":0") })
	defer in.Close()
	out, err := net.Dial("udp", in.LocalAddr().String())
	must(t, err)
	defer out.Close()
	const all = 1000
	came := 0
	buf := make([]byte, 64)
	for range all / 50 {
		for range 50 { // no more at once than a socket keeps
			if _, err := out.Write(buf); err != nil {
				t.Fatal(err)
			}
		}
		must(t, in.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
		for {
			if _, _, err := in.ReadFrom(buf); err != nil {
				break
			}
			came++
		}
	}
	if came < all*70/100 || came > all*90/100 {
		t.Errorf("%d of %d packets came, with a loss of 20 %%", came, all)
	}
}

// TestNothingOfTheMachine: the namespace has its own loopback and nothing else, and names that nobody else sees.
func TestNothingOfTheMachine(t *testing.T) {
	all, err := net.Interfaces()
	must(t, err)
	for _, i := range all {
		if i.Flags&net.FlagLoopback == 0 && i.Flags&net.FlagUp != 0 {
			t.Errorf("interface %s is here before any network is made", i.Name)
		}
	}
	n, err := New(2)
	must(t, err)
	must(t, n.Close())
	out, err := exec.Command("ip", "netns", "list").Output()
	if err != nil || len(out) > 0 {
		t.Errorf("left behind: %q, %v", out, err)
	}
}
