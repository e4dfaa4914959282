package pool

import (
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Pool is the owner's side. Tag methods may be called from any goroutine; who writes a page's bytes is the caller's
// business. No method but Close may be called after Close, and page numbers are below Pages.
type Pool struct {
	poolFile, tagsFile *os.File
	mem, tags          []byte
	pages              uint32
	pageBytes          uint64
}

// New makes a pool of zeroed pages, whose memory is taken at once. Every tag is 0: nobody's, generation 0.
func New(pages uint32, pageBytes uint64) (*Pool, error) {
	if err := checkShape(pages, pageBytes); err != nil {
		return nil, err
	}
	p := &Pool{pages: pages, pageBytes: pageBytes}
	var err error
	if p.tagsFile, p.tags, err = sealedMemfd("leasehold-tags", uint64(pages)*tagBytes, tagSeals); err != nil {
		return nil, err
	}
	if p.poolFile, p.mem, err = sealedMemfd("leasehold-pool", uint64(pages)*pageBytes, poolSeals); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Pages is the number of pages.
func (p *Pool) Pages() uint32 { return p.pages }

// PageBytes is the size of one page.
func (p *Pool) PageBytes() uint64 { return p.pageBytes }

// Page is the memory of page i, shared with every worker.
func (p *Pool) Page(i uint32) []byte {
	at := uint64(i) * p.pageBytes
	return p.mem[at : at+p.pageBytes : at+p.pageBytes]
}

// Memory is all pages, from page 0 on, until Close.
func (p *Pool) Memory() []byte { return p.mem }

// Zero clears page i.
func (p *Pool) Zero(i uint32) { clear(p.Page(i)) }

// StoreTag writes page i's tag; every earlier write of the caller is seen by whoever loads it.
func (p *Pool) StoreTag(i uint32, t Tag) { p.tag(i).Store(uint64(t)) }

// LoadTag reads page i's tag.
func (p *Pool) LoadTag(i uint32) Tag { return Tag(p.tag(i).Load()) }

func (p *Pool) tag(i uint32) *atomic.Uint64 {
	b := p.tags[uint64(i)*tagBytes:][:tagBytes]
	return (*atomic.Uint64)(unsafe.Pointer(&b[0]))
}

// Files are the descriptors to pass to a worker. The pool keeps owning them.
func (p *Pool) Files() (pool, tags *os.File) { return p.poolFile, p.tagsFile }

// Close unmaps the pool and closes its descriptors. Workers that still map it keep the memory alive. Idempotent.
func (p *Pool) Close() error {
	err := first(unmap(&p.mem), unmap(&p.tags))
	for _, f := range []*os.File{p.poolFile, p.tagsFile} {
		if f != nil {
			err = first(err, f.Close())
		}
	}
	p.poolFile, p.tagsFile = nil, nil
	return err
}

func unmap(mem *[]byte) error {
	if *mem == nil {
		return nil
	}
	m := *mem
	*mem = nil
	return unix.Munmap(m)
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
