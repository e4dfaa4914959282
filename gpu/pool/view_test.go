package pool_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"leasehold.dev/gpu/pool"
	"leasehold.dev/protos/errs"
)

func TestViewSeesThePoolAndCannotWriteIt(t *testing.T) {
	p, err := pool.New(3, 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	f, err := p.ReadOnly()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	v, err := pool.OpenView(f, 3, 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	p.Page(2)[17] = 5
	if got := v.Page(2)[17]; got != 5 {
		t.Errorf("the view sees %d, want 5", got)
	}
	if _, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
		t.Error("the descriptor of a view was mapped writable")
	}
	if err := unix.Mprotect(v.Page(0), unix.PROT_READ|unix.PROT_WRITE); err == nil {
		t.Error("a view was made writable")
	}
	if _, err := f.WriteAt([]byte{1}, 0); err == nil {
		t.Error("the descriptor of a view was written")
	}
	if err := v.Close(); err != nil {
		t.Error(err)
	}
	if err := v.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

func TestOpenViewRefuses(t *testing.T) {
	p, err := pool.New(3, 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	f, err := p.ReadOnly()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := pool.OpenView(f, 4, 4096); errs.KindOf(err) != errs.Corrupt {
		t.Errorf("a page more than there is: %v, want Corrupt", err)
	}
	if _, err := pool.OpenView(f, 0, 4096); errs.KindOf(err) != errs.Invalid {
		t.Errorf("no pages: %v, want Invalid", err)
	}
}
