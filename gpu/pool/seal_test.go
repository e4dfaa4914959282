package pool_test

import (
	"fmt"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"leasehold.dev/gpu/pool"
)

// Every way that we know to write tags without being the owner's mapping. Each must fail, and the tags stay as they are.
func TestTagsHaveNoOtherWriter(t *testing.T) {
	p := newPool(t)
	m := newMapping(t, p)
	for i := range uint32(pages) {
		p.StoreTag(i, pool.MakeTag(5, uint64(i)))
	}
	_, tags := p.Files()
	fd, size := int(tags.Fd()), pages*8
	view := unsafe.Slice((*byte)(m.Tags()), os.Getpagesize())
	reopened, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		reopened = fd // the kernel refuses even that
	} else {
		defer unix.Close(reopened)
	}
	writable := func(fd int) func() error {
		return func() error {
			mem, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			if err == nil {
				unix.Munmap(mem)
			}
			return err
		}
	}
	for name, try := range map[string]func() error{
		"mmap writable":                     writable(fd),
		"reopen by /proc and mmap writable": writable(reopened),
		"mprotect the read-only view":       func() error { return unix.Mprotect(view, unix.PROT_READ|unix.PROT_WRITE) },
		"pwrite": func() error {
			_, err := unix.Pwrite(fd, []byte{1}, 0)
			return err
		},
		"pwrite to the reopened file": func() error {
			_, err := unix.Pwrite(reopened, []byte{1}, 0)
			return err
		},
		"punch a hole":   func() error { return unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096) },
		"MADV_REMOVE":    func() error { return unix.Madvise(view, unix.MADV_REMOVE) },
		"shrink":         func() error { return unix.Ftruncate(fd, 0) },
		"grow":           func() error { return unix.Ftruncate(fd, 1<<20) },
		"add a seal":     func() error { _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); return err },
		"/proc/self/mem": func() error { return writeMem(uintptr(m.Tags())) },
	} {
		if err := try(); err == nil {
			t.Errorf("%s: it works", name)
		}
	}
	for i := range uint32(pages) {
		if got := p.LoadTag(i); got != pool.MakeTag(5, uint64(i)) {
			t.Errorf("tag %d is %v after the attempts", i, got)
		}
	}
	p.StoreTag(0, pool.MakeTag(6, 1))
	if got := m.LoadTag(0); got != pool.MakeTag(6, 1) {
		t.Errorf("the owner's store gives the worker %v", got)
	}
}

func writeMem(at uintptr) error {
	f, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt([]byte{9}, int64(at))
	return err
}

// The owner cannot get a second writable mapping either: nobody that it passes its descriptor to can.
func TestEvenTheOwnerGetsNoNewView(t *testing.T) {
	p := newPool(t)
	_, tags := p.Files()
	if mem, err := unix.Mmap(int(tags.Fd()), 0, pages*8, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
		unix.Munmap(mem)
		t.Error("a new writable mapping of the tags works")
	}
}

func TestThePoolKeepsItsSize(t *testing.T) {
	p := newPool(t)
	mem, _ := p.Files()
	fd := int(mem.Fd())
	for name, err := range map[string]error{
		"shrink":     unix.Ftruncate(fd, 0),
		"grow":       unix.Ftruncate(fd, pages*pageBytes*2),
		"add a seal": second(unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE)),
	} {
		if err == nil {
			t.Errorf("%s: it works", name)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestDescriptorsCloseOnExec(t *testing.T) {
	p := newPool(t)
	mem, tags := p.Files()
	for _, f := range []*os.File{mem, tags} {
		if fl, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0); err != nil || fl&unix.FD_CLOEXEC == 0 {
			t.Errorf("%s: flags %#x, %v: a child process would inherit it", f.Name(), fl, err)
		}
	}
}
