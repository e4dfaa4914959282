package pool

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"leasehold.dev/protos/errs"
)

const (
	poolSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	tagSeals  = poolSeals | unix.F_SEAL_FUTURE_WRITE

	maxPages     = 1 << 26
	maxPageBytes = 1 << 30
	tagBytes     = 8
)

func checkShape(pages uint32, pageBytes uint64) error {
	if pages == 0 || pages > maxPages || pageBytes == 0 || pageBytes > maxPageBytes || pageBytes%64 != 0 {
		return errs.New(errs.Invalid, "pool: %d pages (1 to %d) of %d bytes (a multiple of 64, at most %d)",
			pages, maxPages, pageBytes, maxPageBytes)
	}
	return nil
}

// sealedMemfd makes a memfd of size bytes, maps it, touches every page, and only then seals it.
func sealedMemfd(name string, size uint64, seals int) (*os.File, []byte, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, unavailable("memfd_create", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	mem, err := mapSealed(f, size, seals)
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, mem, nil
}

func mapSealed(f *os.File, size uint64, seals int) ([]byte, error) {
	fd := int(f.Fd())
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return nil, unavailable("ftruncate", f.Name(), err)
	}
	mem, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, unavailable("mmap", f.Name(), err)
	}
	askHuge(mem)
	if err := populate(mem); err != nil {
		_ = unix.Munmap(mem)
		return nil, unavailable(fmt.Sprintf("populate %d bytes of", size), f.Name(), err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		_ = unix.Munmap(mem)
		return nil, unavailable("seal", f.Name(), err)
	}
	return mem, nil
}

// populate takes the memory now, so that a host without it says so here and not at a request's first touch.
func populate(mem []byte) error {
	err := unix.Madvise(mem, unix.MADV_POPULATE_WRITE)
	if err != unix.EINVAL {
		return err
	}
	for i := 0; i < len(mem); i += os.Getpagesize() { // kernels before 5.14
		mem[i] = 0
	}
	return nil
}

// mapChecked maps a descriptor that came from elsewhere, after checking that it is what it should be.
func mapChecked(f *os.File, size uint64, seals, prot int) ([]byte, error) {
	fd := int(f.Fd())
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, unavailable("fstat", f.Name(), err)
	}
	if uint64(st.Size) != size {
		return nil, errs.New(errs.Corrupt, "pool: %s has %d bytes, want %d", f.Name(), st.Size, size)
	}
	got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, errs.New(errs.Corrupt, "pool: %s has no seals: %w", f.Name(), err)
	}
	if got&seals != seals {
		return nil, errs.New(errs.Corrupt, "pool: %s has seals %#x, want %#x", f.Name(), got, seals)
	}
	mem, err := unix.Mmap(fd, 0, int(size), prot, unix.MAP_SHARED)
	if err != nil {
		return nil, unavailable("mmap", f.Name(), err)
	}
	askHuge(mem)
	return mem, nil
}

// askHuge asks for huge pages, which save page table walks when pages are copied, digested or read by another process. The
// host grants them with shmem_enabled=advise (in /sys/kernel/mm/transparent_hugepage); without, the memory has small ones.
func askHuge(mem []byte) { _ = unix.Madvise(mem, unix.MADV_HUGEPAGE) }

func unavailable(what, name string, err error) error {
	return errs.New(errs.Unavailable, "pool: %s %s: %w", what, name, err)
}
