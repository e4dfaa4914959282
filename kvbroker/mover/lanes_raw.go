package mover

import (
	"net"
	"sync"

	"leasehold.dev/protos/errs"
)

// Holder is a Source whose pages are written from where they lie.
type Holder interface {
	Source
	// Bytes is the memory of a page that Next returned. It is read until the Pull has ended: see [Lanes.ServePull].
	Bytes(place uint32) ([]byte, error)
}

// NewRawLanes makes n raw lanes, 1 to MaxLanes, for the pages of src: see [NewLanes]. The Pull's stream carries none of them.
func NewRawLanes(n uint32, src Holder, pageBytes uint32) (*Lanes, error) {
	if n < 1 || n > MaxLanes {
		return nil, errs.New(errs.Invalid, "pull: %d raw lanes, want 1 to %d", n, MaxLanes)
	}
	l := newLanes(n, src, pageBytes)
	l.raw, l.conns = src, map[net.Conn]struct{}{}
	return l, nil
}

// Raw says whether the lanes are raw ones.
func (l *Lanes) Raw() bool { return l.raw != nil }

// ServeRaw sends the pages of a raw lane over c, each once, and closes it. No deadline of c is set. The error is Invalid for a
// lane that is not there or was served before.
func (l *Lanes) ServeRaw(c net.Conn, lane uint32) error {
	defer Sever(c)
	if err := l.take(lane, c); err != nil {
		return err
	}
	gone := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		defer close(gone)
		_, _ = c.Read(make([]byte, 1)) // nothing may come: it is over
	})
	err := l.sendRaw(c, lane, gone)
	if err != nil {
		err = l.end(err)
	}
	Sever(c)
	watch.Wait()
	return err
}

// sendRaw sends the places of a lane's queue, and the mark of their end.
func (l *Lanes) sendRaw(c net.Conn, lane uint32, gone <-chan struct{}) error {
	page := faultyPages(func(place uint32, change func([]byte) []byte) error { return l.writePage(c, lane, place, change) })
	for {
		select {
		case place, ok := <-l.queues[lane]:
			if ok {
				if err := page(place); err != nil {
					return err
				}
				continue
			}
			h := putRawHeader(endOfLane, 0)
			if _, err := c.Write(h[:]); err != nil {
				return errs.New(errs.Unavailable, "pull: the end of lane %d: %v", lane, err)
			}
			l.done()
			return nil
		case <-l.over:
			return l.why()
		case <-gone:
			return errs.New(errs.Unavailable, "pull: the receiver has closed lane %d", lane)
		}
	}
}

// writePage writes a page from its memory, as long as the Pull is not over: its end closes c, and waits for this.
func (l *Lanes) writePage(c net.Conn, lane, place uint32, change func([]byte) []byte) error {
	l.reads.RLock()
	defer l.reads.RUnlock()
	select {
	case <-l.over:
		return l.why()
	default:
	}
	page, err := l.raw.Bytes(place)
	if err != nil {
		return err
	}
	if len(page) != int(l.pageBytes) {
		return errs.New(errs.Internal, "pull: page %d has %d bytes, want %d", place, len(page), l.pageBytes)
	}
	if page = faultyCopy(page); change != nil {
		page = change(page)
	}
	h := putRawHeader(place, uint32(len(page)))
	out := net.Buffers{h[:], page} // one writev, or a record of its own for the header
	if _, err := out.WriteTo(c); err != nil {
		return errs.New(errs.Unavailable, "pull: page %d over lane %d: %v", place, lane, err)
	}
	return nil
}
