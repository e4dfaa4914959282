package haul

// #include <string.h>
import "C"

import (
	"context"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Memcpy copies with libc's memcpy from one pool to another of this process, by so many threads.
func Memcpy(threads int) Maker {
	name := "memcpy"
	if threads > 1 {
		name = fmt.Sprintf("memcpy_%d_threads", threads)
	}
	return Maker{Name: name, Checked: "content", Open: func(_ context.Context, l Load) (Way, error) {
		from, err := newPages(l, atSource)
		if err != nil {
			return nil, err
		}
		from.fill()
		to, err := newPages(l, atDestination)
		if err != nil {
			_ = from.Pool.Close()
			return nil, err
		}
		return &memcpy{landing: landing{to}, from: from, threads: threads}, nil
	}}
}

// landing is a destination in this process.
type landing struct{ *Pages }

func (d landing) Clear(context.Context) error { d.clear(); return nil }
func (d landing) Check(context.Context) error { return d.check() }
func (d landing) Close() error                { return d.Pool.Close() }

type memcpy struct {
	landing
	from    *Pages
	threads int
}

func (m *memcpy) Run(context.Context) (Timing, error) {
	start := time.Now()
	var wg sync.WaitGroup
	for first := 1; first < m.threads; first++ {
		wg.Go(func() { m.copy(first) })
	}
	m.copy(0)
	wg.Wait()
	return Timing{Moved: time.Since(start)}, nil
}

func (m *memcpy) copy(first int) {
	n := C.size_t(m.Load.PageBytes)
	for i := first; i < len(m.At); i += m.threads {
		C.memcpy(pointer(m.Place(i)), pointer(m.from.Place(i)), n)
	}
}

func pointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

func (m *memcpy) Close() error {
	_ = m.from.Pool.Close()
	return m.landing.Close()
}

// ReadV reads the pages of another process with process_vm_readv, one page a call.
func ReadV() Maker {
	return Maker{Name: "process_vm_readv", Checked: "content", Open: func(ctx context.Context, l Load) (Way, error) {
		c, a, err := startSending(ctx, sending{Kind: "memory", Load: l})
		if err != nil {
			return nil, err
		}
		to, err := newPages(l, atDestination)
		if err != nil {
			_ = c.close()
			return nil, err
		}
		return &readV{landing{to}, c, a, l.order(atSource)}, nil
	}}
}

type readV struct {
	landing
	source *child
	addr   Address
	from   []uint32
}

func (r *readV) Run(context.Context) (Timing, error) {
	start := time.Now()
	size := r.Load.PageBytes
	for i := range r.At {
		local := unix.Iovec{Base: unsafe.SliceData(r.Place(i))}
		local.SetLen(size)
		remote := unix.RemoteIovec{Base: uintptr(r.addr.Base) + uintptr(r.from[i])*uintptr(size), Len: size}
		n, err := unix.ProcessVMReadv(r.addr.PID, []unix.Iovec{local}, []unix.RemoteIovec{remote}, 0)
		if err != nil || n != size {
			return Timing{}, fmt.Errorf("process_vm_readv: %d of %d bytes: %w", n, size, err)
		}
	}
	return Timing{Moved: time.Since(start)}, nil
}

func (r *readV) Close() error {
	err := r.source.close()
	_ = r.landing.Close()
	return err
}
