package ucx

import (
	"slices"
	"time"

	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/pagesum"
)

// Expectation is a transfer that is to come in.
type Expectation struct {
	ID     ID
	Pages  []uint32 // pool page of each place
	Rows   []uint32 // of each place, 1 to 64: what its digest is over
	Window uint32   // most places that the sender has under way
}

// incoming is what is known of a transfer that comes in.
type incoming struct {
	pages, rows []uint32
	came        []bool      // offered, and taken
	at          []time.Time // when it was whole
	lowest      uint32      // first place that has not come
	window      uint32
}

// offer is a message that was taken.
type offer struct {
	t      *transfer
	place  uint32
	handle uint64
}

// maxWindow bounds the offers of one transfer that are held.
const maxWindow = 1 << 10

// expect makes a transfer that comes in.
func (c *core) expect(e Expectation) error {
	switch {
	case len(e.Pages) == 0 || len(e.Pages) != len(e.Rows):
		return errs.New(errs.Invalid, "ucx: expect %d pages with %d counts of rows", len(e.Pages), len(e.Rows))
	case e.Window == 0 || e.Window > maxWindow:
		return errs.New(errs.Invalid, "ucx: a window of %d pages, want 1 to %d", e.Window, maxWindow)
	}
	for i, p := range e.Pages {
		if p >= c.pages || e.Rows[i] < 1 || e.Rows[i] > pagesum.PageTokens {
			return errs.New(errs.Invalid, "ucx: expect %d rows in page %d of %d", e.Rows[i], p, c.pages)
		}
		if other, ok := c.busy[p]; ok {
			return errs.New(errs.Invalid, "ucx: page %d is of transfer %v until that is drained", p, other)
		}
	}
	if sorted := slices.Sorted(slices.Values(e.Pages)); len(slices.Compact(sorted)) != len(e.Pages) {
		return errs.New(errs.Invalid, "ucx: expect a page for two places")
	}
	t, err := c.add(e.ID)
	if err != nil {
		return err
	}
	t.in = &incoming{pages: slices.Clone(e.Pages), rows: slices.Clone(e.Rows), came: make([]bool, len(e.Pages)), at: make([]time.Time, len(e.Pages)), window: e.Window}
	for _, p := range e.Pages {
		c.busy[p] = e.ID
	}
	return nil
}

// message takes the offer of length bytes. Whole says that it was an offer; else it is over already, and no handle is there.
func (c *core) message(b [headerSize]byte, length, handle uint64, whole bool) {
	c.heard()
	h := headerIn(b)
	t := c.transfers[h.id]
	if t == nil || t.in == nil {
		c.counts.Unknown++
		c.refuse(handle, whole)
		return
	}
	if t.err != nil || t.ending {
		c.refuse(handle, whole)
		return
	}
	if err := c.check(t.in, h, length, whole); err != nil {
		c.counts.Refused++
		c.refuse(handle, whole)
		c.fail(t, h.place, err)
		return
	}
	in := t.in
	in.came[h.place] = true
	for in.lowest < uint32(len(in.came)) && in.came[in.lowest] {
		in.lowest++
	}
	t.pending++
	c.backlog = append(c.backlog, offer{t, h.place, handle})
	c.post()
}

func (c *core) refuse(handle uint64, whole bool) {
	if whole {
		c.commands = append(c.commands, command{kind: release, handle: handle})
	}
}

func (c *core) check(in *incoming, h header, length uint64, whole bool) error {
	switch {
	case !whole:
		return errs.New(errs.Corrupt, "ucx: page %d came without an offer", h.place)
	case h.place >= uint32(len(in.pages)):
		return errs.New(errs.Corrupt, "ucx: page %d, %d expected", h.place, len(in.pages))
	case h.offset != 0 || h.length != c.pageBytes || length != c.pageBytes:
		return errs.New(errs.Corrupt, "ucx: page %d with %d bytes (%d said) at offset %d, a page has %d", h.place, length, h.length, h.offset, c.pageBytes)
	case in.came[h.place]:
		return errs.New(errs.Corrupt, "ucx: page %d came twice", h.place)
	case h.place-in.lowest >= 2*in.window: // the sender's own ends may run ahead of ours
		return errs.New(errs.Corrupt, "ucx: page %d, next is %d and the window %d", h.place, in.lowest, in.window)
	}
	return nil
}

// post begins to receive what was taken, as far as there is room.
func (c *core) post() {
	n := 0
	for ; n < len(c.backlog) && c.posted < c.receives; n++ {
		o := c.backlog[n]
		c.posted++
		c.commands = append(c.commands, command{kind: receive, tag: o.t.tag(o.place), handle: o.handle, page: o.t.in.pages[o.place]})
	}
	c.backlog = slices.Delete(c.backlog, 0, n)
}

func (c *core) releaseBacklog(t *transfer) {
	c.backlog = slices.DeleteFunc(c.backlog, func(o offer) bool {
		if o.t != t {
			return false
		}
		c.refuse(o.handle, true)
		t.pending--
		return true
	})
}

// received takes the end of a receive: its page is not written any more.
func (c *core) received(tag uint64, status int32) {
	t, place := c.of(tag)
	c.posted--
	c.post()
	switch {
	case status != 0:
		c.fail(t, place, errs.New(errs.Unavailable, "ucx: page %d did not come: %s", place, c.text(status)))
	case t.err == nil && !t.ending:
		t.in.at[place] = c.now
		c.digests = append(c.digests, digest{tag: tag, page: t.in.pages[place], rows: t.in.rows[place]})
		return // it is pending until it is digested
	}
	c.ended(t)
}

// digested takes the digest of a page that was received.
func (c *core) digested(tag uint64, sum pagesum.Digest, nonzero uint32, err error) {
	t, place := c.of(tag)
	switch {
	case err != nil:
		c.fail(t, place, err)
	case t.err == nil && !t.ending:
		c.counts.PagesIn++
		c.events = append(c.events, Landed{t.id, place, sum, nonzero, t.in.at[place]})
	}
	c.ended(t)
}
