package hosts

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	queued   = 8192            // frames on their way in one direction; more are lost
	frameMax = 10 + 14 + 1<<16 // the kernel's notes about a checksum, Ethernet's header, the rest
)

// relay carries frames between two interfaces of this process's namespace, each a while later.
type relay struct {
	ends [2]*os.File
	wg   sync.WaitGroup
}

type frame struct {
	due  time.Time
	data []byte
}

func newRelay(a, b string, delay time.Duration) (*relay, error) {
	r := &relay{}
	for i, name := range []string{a, b} {
		f, err := packets(name)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("relay at %s: %w", name, err), r.close())
		}
		r.ends[i] = f
	}
	r.carry(r.ends[0], r.ends[1], delay)
	r.carry(r.ends[1], r.ends[0], delay)
	return r, nil
}

// packets is all that arrives at an interface, and a way out of it. Each frame has the kernel's notes before it, since a
// checksum that nobody has computed yet must stay known as such.
func packets(name string) (*os.File, error) {
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return nil, err
	}
	const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8 // in the network's order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	err = first(
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: ifi.Index}))
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (r *relay) carry(from, to *os.File, delay time.Duration) {
	line := make(chan frame, queued)
	r.wg.Go(func() {
		defer close(line)
		buf := make([]byte, frameMax)
		for {
			n, err := from.Read(buf)
			if errors.Is(err, os.ErrClosed) {
				return
			}
			if err != nil { // the link is down
				continue
			}
			select {
			case line <- frame{time.Now().Add(delay), append([]byte(nil), buf[:n]...)}:
			default:
			}
		}
	})
	r.wg.Go(func() {
		for f := range line {
			time.Sleep(time.Until(f.due))
			_, _ = to.Write(f.data) // what the other side does not take is lost, as on a wire
		}
	})
}

func (r *relay) close() error {
	var all []error
	for _, f := range r.ends {
		if f != nil {
			all = append(all, f.Close())
		}
	}
	r.wg.Wait()
	return errors.Join(all...)
}
