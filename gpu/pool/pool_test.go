package pool_test

import (
	"bytes"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"leasehold.dev/gpu/pool"
	"leasehold.dev/protos/errs"
)

const (
	pages     = 9
	pageBytes = 4096 + 64
)

func newPool(t *testing.T) *pool.Pool {
	t.Helper()
	p, err := pool.New(pages, pageBytes)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return p
}

func newMapping(t *testing.T, p *pool.Pool) *pool.Mapping {
	t.Helper()
	mem, tags := p.Files()
	m, err := pool.Map(mem, tags, pages, pageBytes)
	if err != nil {
		t.Fatalf("Map: %v", err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return m
}

func TestANewPoolIsZeroAndNobodys(t *testing.T) {
	p := newPool(t)
	for i := range uint32(pages) {
		if p.LoadTag(i) != 0 || !bytes.Equal(p.Page(i), make([]byte, pageBytes)) {
			t.Errorf("page %d: tag %v, or bytes that are not zero", i, p.LoadTag(i))
		}
	}
}

func TestOwnerAndWorkerSeeTheSame(t *testing.T) {
	p := newPool(t)
	m := newMapping(t, p)
	for i := range uint32(pages) {
		p.StoreTag(i, pool.MakeTag(7, uint64(i)))
		m.Page(i)[pageBytes-1] = byte(i + 1)
	}
	for i := range uint32(pages) {
		if got := m.LoadTag(i); got != pool.MakeTag(7, uint64(i)) {
			t.Errorf("worker's tag %d is %v", i, got)
		}
		if got := p.Page(i)[pageBytes-1]; got != byte(i+1) {
			t.Errorf("owner reads %d in page %d, the worker wrote %d", got, i, i+1)
		}
	}
}

func TestZeroClearsOnePage(t *testing.T) {
	p := newPool(t)
	for i := range uint32(3) {
		for j := range p.Page(i) {
			p.Page(i)[j] = 0xff
		}
	}
	p.Zero(1)
	for i, want := range []byte{0xff, 0, 0xff} {
		if n := bytes.Count(p.Page(uint32(i)), []byte{want}); n != pageBytes {
			t.Errorf("page %d has %d bytes of %#x, want %d", i, n, want, pageBytes)
		}
	}
}

func TestAPageIsNoLongerThanItself(t *testing.T) {
	p := newPool(t)
	m := newMapping(t, p)
	for name, b := range map[string][]byte{"owner": p.Page(2), "worker": m.Page(2)} {
		if len(b) != pageBytes || cap(b) != pageBytes {
			t.Errorf("%s: page has length %d and capacity %d, want %d", name, len(b), cap(b), pageBytes)
		}
	}
}

func TestShapesThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		pages     uint32
		pageBytes uint64
	}{
		"no pages":                     {0, 4096},
		"pages of no bytes":            {1, 0},
		"pages that end inside a line": {1, 4095},
		"a page beyond 1 GiB":          {1, 1<<30 + 64},
		"more pages than tags are for": {1<<26 + 1, 64},
	} {
		if _, err := pool.New(c.pages, c.pageBytes); errs.KindOf(err) != errs.Invalid {
			t.Errorf("%s: New = %v, want Invalid", name, err)
		}
		if _, err := pool.Map(os.Stdin, os.Stdin, c.pages, c.pageBytes); errs.KindOf(err) != errs.Invalid {
			t.Errorf("%s: Map = %v, want Invalid", name, err)
		}
	}
}

func TestCloseTwice(t *testing.T) {
	p, err := pool.New(1, 64)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

// The worker's memory stays good when the owner is gone: it must not fault before it hears of it.
func TestAMappingOutlivesItsPool(t *testing.T) {
	p, err := pool.New(pages, pageBytes)
	if err != nil {
		t.Fatal(err)
	}
	p.StoreTag(3, pool.MakeTag(1, 2))
	m := newMapping(t, p)
	p.Close()
	if got := m.LoadTag(3); got != pool.MakeTag(1, 2) {
		t.Errorf("tag after the owner's close is %v", got)
	}
	m.Page(0)[0] = 1
}

// memfd makes a descriptor as a false owner could pass it.
func memfd(t *testing.T, size int64, seals int) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "test")
	t.Cleanup(func() { f.Close() })
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestMapRefusesWhatIsNoPool(t *testing.T) {
	const (
		fixed    = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
		readOnly = fixed | unix.F_SEAL_FUTURE_WRITE
	)
	plain, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if err := plain.Truncate(pages * 8); err != nil {
		t.Fatal(err)
	}
	goodPool := memfd(t, pages*pageBytes, fixed)
	goodTags := memfd(t, pages*8, readOnly)
	for name, c := range map[string]struct{ mem, tags *os.File }{
		"a pool that is too small":           {memfd(t, pages*pageBytes-1, fixed), goodTags},
		"a pool that is too large":           {memfd(t, pages*pageBytes+1, fixed), goodTags},
		"a pool that could shrink":           {memfd(t, pages*pageBytes, unix.F_SEAL_GROW|unix.F_SEAL_SEAL), goodTags},
		"a pool that could be sealed more":   {memfd(t, pages*pageBytes, unix.F_SEAL_GROW|unix.F_SEAL_SHRINK), goodTags},
		"tags that are too few":              {goodPool, memfd(t, pages*8-8, readOnly)},
		"tags that anybody could write":      {goodPool, memfd(t, pages*8, fixed)},
		"tags in a file":                     {goodPool, plain},
		"the two descriptors in wrong order": {goodTags, goodPool},
	} {
		m, err := pool.Map(c.mem, c.tags, pages, pageBytes)
		if errs.KindOf(err) != errs.Corrupt {
			t.Errorf("%s: Map = %v, want Corrupt", name, err)
		}
		if err == nil {
			m.Close()
		}
	}
	m, err := pool.Map(goodPool, goodTags, pages, pageBytes)
	if err != nil {
		t.Fatalf("good descriptors: Map = %v", err)
	}
	m.Close()
}
