//go:build cgo

package engine

// #include "engine.h"
import "C"

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"

	"leasehold.dev/model"
	"leasehold.dev/protos/errs"
)

// packed is the cpu back end's weights in its own order: mapped read-only from the cache, or anonymous memory. A cache
// file is the packed bytes and their SHA-256.
type packed struct {
	mem   []byte
	bytes int
}

func (p *packed) base() unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(p.mem)) }

func (p *packed) close() {
	if p != nil && p.mem != nil {
		_ = unix.Munmap(p.mem) // fails only for memory that is not mapped
		p.mem = nil
	}
}

// pack gives m's packed weights: from the cache when a whole file is there, else made now and, with a cache, kept. A
// file that does not have its sum is made again.
func pack(m *model.Model, d *description, o Options) (*packed, error) {
	bytes := int(C.lh_pack_bytes(&d.model))
	if bytes == 0 {
		return nil, errs.New(errs.Unavailable, "engine: back end %s cannot pack this model on this machine", o.Backend)
	}
	if o.CacheDir == "" {
		return packAnonymous(d, bytes, o.Threads)
	}
	path := filepath.Join(o.CacheDir, fmt.Sprintf("%x-v%d.pack", m.Revision, C.LH_PACK_VERSION))
	if p := openPacked(path, bytes); p != nil {
		return p, nil
	}
	if err := writePacked(d, path, bytes, o.Threads); err != nil {
		return nil, err
	}
	if p := openPacked(path, bytes); p != nil {
		return p, nil
	}
	return nil, errs.New(errs.Unavailable, "engine: packed weights do not read back from the cache as written")
}

func packAnonymous(d *description, bytes, threads int) (*packed, error) {
	mem, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, errs.New(errs.Exhausted, "engine: %d bytes for packed weights: %w", bytes, err)
	}
	p := &packed{mem, bytes}
	if err := packInto(d, mem, threads); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// packInto writes the packed weights to mem, which is mapped and not Go's.
func packInto(d *description, mem []byte, threads int) error {
	var msg [256]C.char
	rc := C.lh_pack(&d.model, unsafe.Pointer(&mem[0]), C.size_t(len(mem)), C.uint32_t(threads), &msg[0], C.int(len(msg)))
	return (&Engine{msg: msg}).fault("pack weights", rc)
}

// openPacked maps a cache file and checks its sum; nil if there is none that is whole.
func openPacked(path string, bytes int) *packed {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	total := bytes + sha256.Size
	if st, err := f.Stat(); err != nil || st.Size() != int64(total) {
		return nil
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, total, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil
	}
	p := &packed{mem, bytes}
	sum := sha256.Sum256(mem[:bytes])
	if [sha256.Size]byte(mem[bytes:]) != sum {
		p.close()
		return nil
	}
	return p
}

// writePacked makes the cache file under another name first, so that nobody ever sees half of one.
func writePacked(d *description, path string, bytes, threads int) (err error) {
	wrap := func(err error) error { return errs.New(errs.Unavailable, "engine: cache of packed weights: %w", err) }
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return wrap(err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return wrap(err)
	}
	defer func() {
		f.Close()
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	if err := fillPacked(d, f, bytes, threads); err != nil {
		return wrap(err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return wrap(err)
	}
	return nil
}

func fillPacked(d *description, f *os.File, bytes, threads int) error {
	total := bytes + sha256.Size
	if err := unix.Fallocate(int(f.Fd()), 0, 0, int64(total)); err != nil { // a full disk is an error here, not a SIGBUS
		if err != unix.EOPNOTSUPP {
			return err
		}
		if err := f.Truncate(int64(total)); err != nil {
			return err
		}
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, total, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Munmap(mem) }()
	if err := packInto(d, mem[:bytes], threads); err != nil {
		return err
	}
	sum := sha256.Sum256(mem[:bytes])
	copy(mem[bytes:], sum[:])
	return nil
}
