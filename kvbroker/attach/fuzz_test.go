package attach

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"leasehold.dev/protos/errs"
)

// pair is a connected pair of sockets of the attach socket's kind.
func pair(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		out[i] = c.(*net.UnixConn)
	}
	return out[0], out[1]
}

// typed says that an error is one of ours, for who sent bad bytes.
func typed(t *testing.T, what string, err error, kinds ...errs.Kind) {
	t.Helper()
	for _, k := range kinds {
		if errs.KindOf(err) == k {
			return
		}
	}
	t.Errorf("%s: %v of kind %v", what, err, errs.KindOf(err))
}

// FuzzAttach sends any bytes, with up to three descriptors, as a worker's request and as a broker's offer. Nothing crashes,
// no descriptor stays open after an error, and what is taken is well formed.
func FuzzAttach(f *testing.F) {
	want := Want{LayoutHash: []byte{1}, NumericsClass: "x86", PageBytes: 4096}
	for _, v := range []any{Request{Protocol: Protocol, Worker: "w", Want: want}, Request{}, Offer{Error: "no", Kind: 4}, Offer{Error: "no", Kind: 200},
		Offer{Protocol: Protocol, Broker: "b", Instance: []byte{1}, Attach: []byte{2}, LayoutHash: []byte{3}, ModelRevision: []byte{4}, Pages: 1, PageBytes: 2}} {
		b, err := json.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, uint8(0))
		f.Add(b, uint8(2))
		f.Add(b, uint8(3))
	}
	f.Add([]byte(`{"protocol":1,"worker":"`+strings.Repeat("w", 129)+`"}`), uint8(0))
	f.Add(bytes.Repeat([]byte("["), maxMessage+1), uint8(1))
	f.Add([]byte("null"), uint8(2))
	f.Fuzz(func(t *testing.T, b []byte, files uint8) {
		if len(b) == 0 {
			return // a packet of nothing is the end of the socket
		}
		var r Request
		if err := crossing(t, b, int(files%4), &r); err != nil {
			typed(t, "request", err, errs.Invalid, errs.Unavailable)
		} else if err := r.check(); err != nil {
			typed(t, "request", err, errs.Invalid)
		} else if r.Worker == "" || r.Protocol != Protocol {
			t.Errorf("taken: %+v", r)
		}
		var o Offer
		if err := crossing(t, b, int(files%4), &o); err != nil {
			typed(t, "offer", err, errs.Invalid, errs.Unavailable)
			return
		}
		if err := o.check(); err != nil {
			if name := errs.KindOf(err).String(); strings.Contains(name, "(") {
				t.Errorf("offer: an error of no known kind, %s: %v", name, err)
			}
		} else if o.Pages == 0 || o.PageBytes == 0 || len(o.Attach) == 0 {
			t.Errorf("taken: %+v", o)
		} else if err := r.Want.Match(o); err != nil {
			typed(t, "match", err, errs.Invalid)
		}
	})
}

// crossing sends b and some descriptors over, and receives it.
func crossing(t *testing.T, b []byte, files int, into any) error {
	t.Helper()
	from, to := pair(t)
	defer from.Close()
	defer to.Close()
	var fds []int
	for range files {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		fds = append(fds, int(f.Fd()))
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	if _, _, err := from.WriteMsgUnix(b, oob, nil); err != nil {
		return errs.New(errs.Unavailable, "send: %w", err)
	}
	got, err := receive(to, into)
	defer closeAll(got)
	if err != nil && len(got) > 0 {
		t.Errorf("%d descriptors are open after %v", len(got), err)
	}
	if err == nil && (len(got) != files || files > maxFiles) {
		t.Errorf("%d descriptors came of %d", len(got), files)
	}
	return err
}
