package handoff

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"leasehold.dev/integration/driver"
	"leasehold.dev/integration/scenario"
	"leasehold.dev/protos/errs"
)

// poolMemory maps a broker's pool: the test holds the memfd, as a worker does.
func poolMemory(t *testing.T, pid int) []byte {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	fds, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var pool *os.File
	var size int64
	for _, fd := range fds {
		path := filepath.Join(dir, fd.Name())
		if to, err := os.Readlink(path); err != nil || !strings.HasPrefix(to, "/memfd:") {
			continue
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			continue // the tags: nobody else can write them
		}
		t.Cleanup(func() { f.Close() })
		if st, err := f.Stat(); err == nil && st.Size() > size {
			pool, size = f, st.Size()
		}
	}
	if pool == nil {
		t.Fatalf("process %d has no memfd that could be a pool", pid)
	}
	mem, err := unix.Mmap(int(pool.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(mem) })
	return mem
}

// flipUsed flips a byte in each page that holds anything, at that place or the first after it that is not zero, and
// returns how many pages it changed.
func flipUsed(mem []byte, pageBytes, at int) int {
	n := 0
	for page := 0; page+pageBytes <= len(mem); page += pageBytes {
		for i := page + at; i < page+pageBytes; i++ {
			if mem[i] != 0 {
				mem[i] ^= 0x08
				n++
				break
			}
		}
	}
	return n
}

// places are where in a page a byte flips: that is the digest's to find, whatever the mover, so one does for the second.
func places(st *scenario.Stage) []int {
	if st.Driver.Mover == movers["shm"] {
		return []int{4096}
	}
	return []int{0, 4096, 9000}
}

// TestH5 flips a byte of every used page at rest: at prefill's broker while it writes, and at decode's while STAGED.
func TestH5(t *testing.T) { onEach(t, nil, h5) }

func h5(t *testing.T, st *scenario.Stage) {
	for _, tt := range []struct {
		name, broker string
		in           func(context.Context) error // returns nil once there is something to hit
	}{
		{"at rest at prefill's broker", "broker-p", used(st, "broker-p")},
		{"while staged at decode's broker", "broker-d", used(st, "broker-d")},
	} {
		for _, at := range places(st) {
			t.Run(fmt.Sprintf("%s, from byte %d", tt.name, at), func(t *testing.T) {
				pid := st.Process("kvbroker/" + tt.broker).PID()
				mem := poolMemory(t, pid)
				d, err := st.Describe(t.Context(), tt.broker)
				if err != nil {
					t.Fatal(err)
				}
				pageBytes := len(mem) / int(d.Pool.Pages)
				done := make(chan error, 1)
				var out driver.Outcome
				go func() {
					var err error
					out, err = st.Driver.Run(t.Context(), driver.Request{Tenant: "demo", IDs: ids(1200), MaxNew: 4, Prefill: "prefill-0", Decode: "decode-0"})
					done <- err
				}()
				err = scenario.Until(t.Context(), func() error { return tt.in(t.Context()) })
				hit := 0
				for err == nil && hit == 0 {
					hit = flipUsed(mem, pageBytes, at)
				}
				if err := errors.Join(err, <-done); errs.KindOf(err) != errs.Corrupt {
					t.Errorf("%d pages hit, ended with %v (kind %v), want corrupt", hit, err, errs.KindOf(err))
				}
				if len(out.Tokens) > 0 || out.Finished != nil { // decode's verdict is of the first look, and may be out
					t.Errorf("%d tokens, end %v came out", len(out.Tokens), out.Finished)
				}
				withheld(t, st)
			})
		}
	}
}

// used waits for pages with content: two chunks in, so that some are sealed or staged and the request is far from its end.
func used(st *scenario.Stage, broker string) func(context.Context) error {
	return func(ctx context.Context) error {
		d, err := st.Describe(ctx, broker)
		if err != nil {
			return err
		}
		if d.Pool.Sealed+d.Pool.Staged == 0 {
			return errors.New("no page is sealed or staged yet")
		}
		return nil
	}
}

// withheld waits until no lease is left. A page that a broker found changed at release stays withheld until every process
// that could have written it is gone, and here that is the test's own doing: it wrote, or it lied about a digest.
func withheld(t *testing.T, st *scenario.Stage) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Second, errors.New("10 s are over"))
	defer cancel()
	for _, b := range st.Brokers {
		err := scenario.Until(ctx, func() error {
			d, err := st.Describe(ctx, b.Name)
			if err == nil && (len(d.Leases) > 0 || d.Pool.Free+d.Pool.Zeroing+d.Pool.Quarantine != d.Pool.Pages) {
				err = fmt.Errorf("broker %s: pool %v, leases %v", b.Name, d.Pool, d.Leases)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// sentPages are the pages of p that lie in d as they are: those were sent, and have arrived.
func sentPages(p, d []byte, pageBytes int) (sent [][]byte) {
	for from := 0; from+pageBytes <= len(p); from += pageBytes {
		page := p[from : from+pageBytes]
		if page[0]|page[1]|page[2]|page[3] == 0 {
			continue
		}
		for to := 0; to+pageBytes <= len(d); to += pageBytes {
			if bytes.Equal(page, d[to:to+pageBytes]) {
				sent = append(sent, page)
				break
			}
		}
	}
	return sent
}

// TestH5AfterItWasSent flips bytes at prefill's broker in pages that decode's has already, and in no other: what arrived
// is right, and the rows of later pages were computed from what is not.
func TestH5AfterItWasSent(t *testing.T) { onEach(t, nil, h5AfterItWasSent) }

func h5AfterItWasSent(t *testing.T, st *scenario.Stage) {
	p := poolMemory(t, st.Process("kvbroker/broker-p").PID())
	d := poolMemory(t, st.Process("kvbroker/broker-d").PID())
	info, err := st.Describe(t.Context(), "broker-p")
	if err != nil {
		t.Fatal(err)
	}
	pageBytes := len(p) / int(info.Pool.Pages)
	for _, at := range places(st) {
		t.Run(fmt.Sprintf("byte %d", at), func(t *testing.T) {
			if err := scenario.Until(t.Context(), func() error { // what the request before left is still being cleared
				if n := len(sentPages(p, d, pageBytes)); n > 0 {
					return fmt.Errorf("%d pages of an earlier request", n)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			var out driver.Outcome
			go func() {
				var err error
				out, err = st.Driver.Run(t.Context(), driver.Request{Tenant: "demo", IDs: ids(1200), MaxNew: 4, Prefill: "prefill-0", Decode: "decode-0"})
				done <- err
			}()
			hit := 0
			err := scenario.Until(t.Context(), func() error {
				for _, page := range sentPages(p, d, pageBytes) {
					page[at] ^= 0x08
					hit++
				}
				if hit == 0 {
					return errors.New("no page has arrived yet")
				}
				return nil
			})
			if err := errors.Join(err, <-done); errs.KindOf(err) != errs.Corrupt {
				t.Errorf("%d pages hit, ended with %v (kind %v), want corrupt", hit, err, errs.KindOf(err))
			}
			if len(out.Tokens) > 0 {
				t.Errorf("%d tokens came out", len(out.Tokens))
			}
			withheld(t, st)
		})
	}
}
