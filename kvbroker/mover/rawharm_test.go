package mover

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"

	"leasehold.dev/mesh/identity"
	"leasehold.dev/protos/errs"
)

func TestARawLanesHarm(t *testing.T) {
	lost := errs.New(errs.Limit, "P holds 64 tokens")
	const size = 3000
	// sends writes bytes as they are on lane 1; lane 0 is served as it should be.
	sends := func(b ...[]byte) func(*rawPeer, net.Conn, uint32) error {
		return func(p *rawPeer, c net.Conn, lane uint32) error {
			if lane == 0 {
				return p.lanes.ServeRaw(c, lane)
			}
			_, err := c.Write(bytes.Join(b, nil))
			if err == nil {
				_, _ = io.Copy(io.Discard, c) // until the receiver has enough
			}
			return err
		}
	}
	head := func(place, n uint32) []byte { return bundleHeader([]uint32{place}, []uint32{n}) }
	two := func(first, second, n uint32) []byte { return bundleHeader([]uint32{first, second}, []uint32{size, n}) }
	page := make([]byte, size)
	for i := range page {
		page[i] = 0xee // no page of the source has it everywhere
	}
	for _, tt := range []struct {
		name  string
		pages func(*lanedPages)
		serve func(*rawPeer, net.Conn, uint32) error
		want  errs.Kind
		text  string
	}{
		{"a page of another lane", nil, sends(head(0, size), page), errs.Corrupt, "page 0 over lane 1 of 2, where it does not belong"},
		{"a repeated page", nil, sends(head(1, size), make([]byte, size), head(1, size), page), errs.Corrupt, "page 1 out of order, next is 3"},
		{"a page left out", nil, sends(head(3, size), page), errs.Corrupt, "page 3 out of order, next is 1"},
		{"a page that is not there", nil, sends(head(7, size), page), errs.Corrupt, "page 7, 6 expected"},
		{"a place of 2^32 - 1", nil, sends(head(1<<32-1, size), page), errs.Corrupt, "page 4294967295, 6 expected"},
		{"a short page", nil, sends(head(1, size-1), page), errs.Corrupt, "pages come whole"},
		{"a long page", nil, sends(head(1, size+1), page), errs.Corrupt, "a page has 3000"},
		{"a page of 2^32 - 1 bytes", nil, sends(head(1, 1<<32-1), page), errs.Corrupt, "a page has 3000"},
		{"an empty page", nil, sends(head(1, 0)), errs.Corrupt, "empty part"},
		{"an early end", nil, sends(head(1, size), make([]byte, size), bundleHeader(nil, nil)), errs.Corrupt, "lane 1 ended before page 3 of 6"},
		{"a second page of another lane", nil, sends(two(1, 2, size), make([]byte, size), page), errs.Corrupt, "page 2 over lane 1 of 2"},
		{"a second page too long", nil, sends(two(1, 3, size+1), make([]byte, size), page), errs.Corrupt, "a page has 3000"},
		{"the same page twice at once", nil, sends(two(1, 1, size), make([]byte, size), page), errs.Corrupt, "page 1 out of order, next is 3"},
		{"too many pages at once", nil, sends(bundleHeader(make([]uint32, maxBundle+1), make([]uint32, maxBundle+1)), page), errs.Corrupt, "65 pages at once over raw lane 1, at most 64"},
		{"2^32 - 1 pages at once", nil, sends([]byte{255, 255, 255, 255}, head(1, size), page), errs.Corrupt, "4294967295 pages at once"},
		{"a connection that breaks at once", nil, func(p *rawPeer, c net.Conn, lane uint32) error {
			if lane == 0 {
				return p.lanes.ServeRaw(c, lane)
			}
			Sever(c)
			return nil
		}, errs.Unavailable, "raw lane 1 has broken"},
		{"a connection that breaks in a page", nil, func(p *rawPeer, c net.Conn, lane uint32) error {
			if lane == 0 {
				return p.lanes.ServeRaw(c, lane)
			}
			_, err := c.Write(append(head(1, size), p.src.from[1][:100]...))
			Sever(c)
			return err
		}, errs.Unavailable, "raw lane 1 has broken in page 1"},
		{"a source that fails", func(p *lanedPages) { p.failNext = lost }, nil, errs.Limit, "P holds 64 tokens"},
		{"a page that cannot be read", func(p *lanedPages) { p.failRead = lost }, nil, errs.Limit, "P holds 64 tokens"},
		{"a destination that fails", func(p *lanedPages) { p.failPage = lost }, nil, errs.Limit, "P holds 64 tokens"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newRawPeer(t, 6, size, identity.Plain(), identity.Plain())
			p.serve = tt.serve
			if tt.pages != nil {
				tt.pages(p.src)
			}
			_, err := p.move(t, 2)
			if errs.KindOf(err) != tt.want || err == nil ||
				!strings.Contains(err.Error(), tt.text) && !strings.Contains(err.Error(), "has closed lane") {
				t.Errorf("Receive = %v (%v), want %v and %q", err, errs.KindOf(err), tt.want, tt.text)
			}
			for place, to := range p.src.to {
				if bytes.Contains(to, page[:10]) {
					t.Errorf("page %d was written with what was refused", place)
				}
			}
			if n := p.src.late.Load(); n > 0 {
				t.Errorf("%d reads of page memory after the Pull's end", n)
			}
		})
	}
}
