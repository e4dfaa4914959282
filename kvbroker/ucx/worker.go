//go:build ucx && cgo

package ucx

// #cgo CFLAGS: -O2 -Wall -Wextra -std=gnu11
// #cgo LDFLAGS: -lucp -lucs
// #include <stdlib.h>
// #include "uc.h"
import "C"

import (
	"time"
	"unsafe"

	"leasehold.dev/protos/errs"
)

// Built says whether UCX is in this program.
const Built = true

// Missing says what this program lacks to open a Mover; nil: nothing.
func Missing() error { return nil }

// worker is a uc. All but signal is called by one thread.
type worker struct {
	u         *C.uc
	pageBytes uint64
	events    [C.UC_MAX_EVENTS]C.uc_event
	commands  [C.UC_MAX_EVENTS]C.uc_command
}

func newWorker(pool []byte, pageBytes uint64, kv []string) (*worker, error) {
	list := make([]*C.char, 0, len(kv)+1)
	for _, s := range kv {
		list = append(list, C.CString(s))
	}
	defer func() {
		for _, s := range list {
			C.free(unsafe.Pointer(s))
		}
	}()
	arr := (**C.char)(C.calloc(C.size_t(len(list)+1), C.size_t(unsafe.Sizeof(uintptr(0)))))
	defer C.free(unsafe.Pointer(arr))
	copy(unsafe.Slice(arr, len(list)), list)
	msg := (*C.char)(C.calloc(1, 256))
	defer C.free(unsafe.Pointer(msg))
	u := C.uc_new(arr, unsafe.Pointer(unsafe.SliceData(pool)), C.uint64_t(len(pool)), msg, 256)
	if u == nil {
		return nil, errs.New(errs.Unavailable, "ucx: %s", C.GoString(msg))
	}
	return &worker{u: u, pageBytes: pageBytes}, nil
}

func (w *worker) address() (string, error) {
	b := make([]byte, maxAddress)
	n := C.uc_address(w.u, unsafe.Pointer(&b[0]), C.size_t(len(b)))
	if n <= 0 || n > maxAddress {
		return "", errs.New(errs.Unavailable, "ucx: no address: %d", int64(n))
	}
	return string(b[:n]), nil
}

// open makes an endpoint; below 0: a status.
func (w *worker) open(address string) int64 {
	return int64(C.uc_open(w.u, unsafe.Pointer(unsafe.StringData(address)), C.size_t(len(address))))
}

// submit carries out some of the commands, from the first on, and returns how many. None is an open.
func (w *worker) submit(list []command) int {
	n := min(len(list), len(w.commands))
	for i, c := range list[:n] {
		o := &w.commands[i]
		*o = C.uc_command{tag: C.uint64_t(c.tag), handle: C.uint64_t(c.handle), offset: C.uint64_t(uint64(c.page) * w.pageBytes),
			len: C.uint64_t(w.pageBytes)}
		if c.endpoint != nil {
			o.endpoint = C.uint32_t(c.endpoint.number) // -1 is none that is there
		}
		switch c.kind {
		case send:
			o.kind = C.UC_SEND
			for j, b := range c.header.bytes() {
				o.header[j] = C.uint8_t(b)
			}
		case receive:
			o.kind = C.UC_RECEIVE
		case release:
			o.kind = C.UC_RELEASE
		case closing:
			o.kind = C.UC_CLOSE
		case probe:
			o.kind = C.UC_PROBE
		}
	}
	return int(C.uc_submit(w.u, &w.commands[0], C.int(n)))
}

// poll works and returns how many events there are.
func (w *worker) poll(spins int) int { return int(C.uc_poll(w.u, &w.events[0], C.int(spins))) }

// tell gives the first n events to the core. Find is the endpoint of a number.
func (w *worker) tell(n int, c *core, find func(number int64) *endpoint) {
	for i := range w.events[:n] {
		e := &w.events[i]
		switch e.kind {
		case C.UC_MESSAGE, C.UC_REFUSED:
			c.message(*(*[headerSize]byte)(unsafe.Pointer(&e.header)), uint64(e.len), uint64(e.handle), e.kind == C.UC_MESSAGE)
		case C.UC_SENT:
			c.sent(uint64(e.tag), int32(e.status))
		case C.UC_RECEIVED:
			c.received(uint64(e.tag), int32(e.status))
		case C.UC_FAILED:
			if p := find(int64(e.tag)); p != nil {
				c.broken(p, int32(e.status))
			}
		case C.UC_PROBED:
			if e.status == 0 { // one that could not be sent is one that did not come
				c.heard()
			}
		}
	}
}

// wait sleeps until there may be work, at most d; d below 0: without a limit.
func (w *worker) wait(d time.Duration) {
	ms := C.int(-1)
	if d >= 0 {
		ms = C.int(d.Milliseconds())
	}
	C.uc_wait(w.u, ms)
}

func (w *worker) signal()   { C.uc_signal(w.u) }
func (w *worker) free() int { return int(C.uc_free(w.u)) }

func statusText(status int32) string { return C.GoString(C.uc_status(C.int(status))) }
