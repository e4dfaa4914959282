package pool

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// View is a read-only look at the pages of another broker's pool: what a mover on the same host copies from. No method
// but Close may be called after Close.
type View struct {
	mem       []byte
	pages     uint32
	pageBytes uint64
}

// ReadOnly opens the pool's memory again, for reading. The caller closes the file. Whoever gets it cannot map the pages
// writable through it; a process of the same user could still open the memory anew, so it is a fence against mistakes.
func (p *Pool) ReadOnly() (*os.File, error) {
	f, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", p.poolFile.Fd()))
	if err != nil {
		return nil, unavailable("open read-only", p.poolFile.Name(), err)
	}
	return f, nil
}

// OpenView checks the descriptor's size and seals and maps it. It does not keep it: the caller closes its file.
func OpenView(pool *os.File, pages uint32, pageBytes uint64) (*View, error) {
	if err := checkShape(pages, pageBytes); err != nil {
		return nil, err
	}
	mem, err := mapChecked(pool, uint64(pages)*pageBytes, poolSeals, unix.PROT_READ)
	if err != nil {
		return nil, err
	}
	_ = unix.Madvise(mem, unix.MADV_POPULATE_READ) // page tables only; a failure costs time and nothing else
	return &View{mem, pages, pageBytes}, nil
}

// Pages is the number of pages.
func (v *View) Pages() uint32 { return v.pages }

// Page is the memory of page i, i < Pages. It cannot be written.
func (v *View) Page(i uint32) []byte {
	at := uint64(i) * v.pageBytes
	return v.mem[at : at+v.pageBytes : at+v.pageBytes]
}

// Close unmaps. Idempotent.
func (v *View) Close() error { return unmap(&v.mem) }
