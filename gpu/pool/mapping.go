package pool

import (
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Mapping is a worker's view of a pool: pages writable, tags read-only. It must outlive every engine pool attached to
// it; no method but Close may be called after Close.
type Mapping struct {
	mem, tags []byte
	pages     uint32
	pageBytes uint64
}

// Map checks the descriptors' sizes and seals and maps them. It does not keep them: the caller closes its files.
func Map(pool, tags *os.File, pages uint32, pageBytes uint64) (*Mapping, error) {
	if err := checkShape(pages, pageBytes); err != nil {
		return nil, err
	}
	m := &Mapping{pages: pages, pageBytes: pageBytes}
	var err error
	if m.tags, err = mapChecked(tags, uint64(pages)*tagBytes, tagSeals, unix.PROT_READ); err != nil {
		return nil, err
	}
	if m.mem, err = mapChecked(pool, uint64(pages)*pageBytes, poolSeals, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		m.Close()
		return nil, err
	}
	// The memory is there; this only builds our page tables, so a failure costs time and nothing else.
	_ = unix.Madvise(m.mem, unix.MADV_POPULATE_WRITE)
	_ = unix.Madvise(m.tags, unix.MADV_POPULATE_READ)
	return m, nil
}

// Base is the address of page 0.
func (m *Mapping) Base() unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(m.mem)) }

// Tags is the address of tag 0; the memory cannot be written.
func (m *Mapping) Tags() unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(m.tags)) }

// Memory is all pages, from page 0 on.
func (m *Mapping) Memory() []byte { return m.mem }

// Pages is the number of pages.
func (m *Mapping) Pages() uint32 { return m.pages }

// PageBytes is the size of one page.
func (m *Mapping) PageBytes() uint64 { return m.pageBytes }

// Page is the memory of page i, i < Pages.
func (m *Mapping) Page(i uint32) []byte {
	at := uint64(i) * m.pageBytes
	return m.mem[at : at+m.pageBytes : at+m.pageBytes]
}

// LoadTag reads page i's tag, i < Pages.
func (m *Mapping) LoadTag(i uint32) Tag {
	b := m.tags[uint64(i)*tagBytes:][:tagBytes]
	return Tag((*atomic.Uint64)(unsafe.Pointer(&b[0])).Load())
}

// Close unmaps. Idempotent.
func (m *Mapping) Close() error { return first(unmap(&m.mem), unmap(&m.tags)) }
