package server

import (
	"bytes"
	"fmt"
	"math/rand/v2"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/kvbroker/lease"
	"leasehold.dev/mesh/audit/event"
	"leasehold.dev/mesh/boundary"
	"leasehold.dev/protos/fault"
)

// suspects are the attach handles whose process could have written a page late. mu guards them.
type suspects map[lease.Attach]struct{}

// clearPages clears proven pages, one lease after the other, and says so to the table.
func (b *Broker) clearPages() {
	for {
		select {
		case <-b.wake:
		case <-b.ctx.Done():
			return
		}
		for {
			b.mu.Lock()
			if len(b.dirty) == 0 {
				b.dirty = nil
				b.mu.Unlock()
				break
			}
			z := b.dirty[0]
			b.dirty = b.dirty[1:]
			b.mu.Unlock()
			b.clearLease(z)
			if b.ctx.Err() != nil {
				return
			}
		}
	}
}

func (b *Broker) clearLease(z lease.Zero) {
	late, looked := map[uint32]bool{}, 0
	for _, s := range z.Seals {
		if int(s.Index) >= len(z.Pages) || !b.sampled() {
			continue
		}
		looked++
		page := z.Pages[s.Index]
		d, _, err := engine.PageSum(b.cfg.Layout, b.pool.Page(page), s.Rows, b.keys)
		if err != nil || d != s.Digest {
			late[page] = true
		}
	}
	if looked > 0 {
		b.cfg.Boundary.Observed(boundary.P2, boundary.LateWrite, "")
	}
	var clean []uint32
	for _, p := range z.Pages {
		if late[p] && b.withhold(p, z.Lease, "a sealed page changed before it was cleared") {
			continue
		}
		if b.condemned(p) && b.withhold(p, z.Lease, "a page that was cleared is not zero at its grant") {
			continue
		}
		b.spoilBeforeClear(p)
		if !fault.Off(fault.Zero) {
			b.pool.Zero(p)
		}
		b.spoilAfterClear(p)
		clean = append(clean, p)
	}
	if len(clean) > 0 {
		b.cfg.Audit.Append(event.PagesZeroed{Lease: leaseName(z.Lease), Pages: event.Numbered(clean)})
		b.report(lease.Zeroed{Pages: clean})
	}
}

// sampled says whether to check this page.
func (b *Broker) sampled() bool {
	return b.cfg.CheckShare >= 1 || (b.cfg.CheckShare > 0 && rand.Float64() < b.cfg.CheckShare)
}

// dirtyGrant looks at a share of pages that were granted as zeroed, and returns those that are not.
func (b *Broker) dirtyGrant(pages []lease.PageTag) (dirty []uint32) {
	for _, p := range pages {
		if b.sampled() && !isZero(b.pool.Page(p.Page)) {
			dirty = append(dirty, p.Page)
		}
	}
	return dirty
}

var zeros [64 << 10]byte

func isZero(p []byte) bool {
	for len(p) > len(zeros) {
		if !bytes.Equal(p[:len(zeros)], zeros[:]) {
			return false
		}
		p = p[len(zeros):]
	}
	return bytes.Equal(p, zeros[:len(p)])
}

// condemned says whether the page was found dirty at a grant, once.
func (b *Broker) condemned(page uint32) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, found := b.dirtied[page]
	delete(b.dirtied, page)
	return found
}

// withhold reports a late write and keeps the page from being granted until no process is left that could have been the
// writer. It is false when none is left already.
func (b *Broker) withhold(page uint32, of lease.ID, what string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := suspects{}
	for a := range b.handles {
		s[a] = struct{}{}
	}
	for a := range b.carriers {
		s[a] = struct{}{}
	}
	b.metrics.incident("late_write")
	b.cfg.Boundary.Incident(boundary.P2, boundary.LateWrite, fmt.Sprintf("page %d", page))
	b.cfg.Audit.Append(event.LateWrite{Page: page, Lease: leaseName(of), What: what, Suspects: len(s)})
	b.cfg.Log.Error("incident: late write", "page", page, "what", what, "suspects", len(s))
	if len(s) == 0 {
		return false
	}
	b.withheld[page] = s
	return true
}

// acquit takes a process that is gone off the lists, and clears the pages whose list is empty now. Callers hold mu.
func (b *Broker) acquit(a lease.Attach) {
	var free []uint32
	for p, s := range b.withheld {
		if delete(s, a); len(s) == 0 {
			free = append(free, p)
			delete(b.withheld, p)
		}
	}
	if len(free) > 0 {
		b.dirty = append(b.dirty, lease.Zero{Pages: free})
		notify(b.wake)
	}
}
