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
	b := &bundle{lanes: l}
	page := faultyPages(b.add)
	for {
		select {
		case place, ok := <-l.queues[lane]:
			if ok {
				if err := l.sendBundle(c, lane, place, b, page); err != nil {
					return err
				}
				continue
			}
			if _, err := c.Write(bundleHeader(nil, nil)); err != nil {
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

// sendBundle writes the page of a place, and those that are queued behind it as far as they fit, from their memory; as long
// as the Pull is not over: its end closes c, and waits for this.
func (l *Lanes) sendBundle(c net.Conn, lane, place uint32, b *bundle, page func(place uint32) error) error {
	l.reads.RLock()
	defer l.reads.RUnlock()
	select {
	case <-l.over:
		return l.why()
	default:
	}
	b.reset()
	err := page(place)
	for more := true; more && err == nil && b.room(); {
		select {
		case place, ok := <-l.queues[lane]:
			if more = ok; ok {
				err = page(place)
			}
		default:
			more = false
		}
	}
	if err != nil || len(b.places) == 0 {
		return err
	}
	out := append(net.Buffers{bundleHeader(b.places, b.lengths)}, b.pages...) // one writev, or a record of its own for the header
	if _, err := out.WriteTo(c); err != nil {
		return errs.New(errs.Unavailable, "pull: page %d over lane %d: %v", place, lane, err)
	}
	return nil
}

// bundle is the pages that are written next.
type bundle struct {
	lanes           *Lanes
	places, lengths []uint32
	pages           [][]byte
	bytes           int
}

func (b *bundle) reset() {
	b.places, b.lengths, b.pages, b.bytes = b.places[:0], b.lengths[:0], b.pages[:0], 0
}

// room says whether another page may follow. A fault may make two of one.
func (b *bundle) room() bool { return b.bytes < bundleBytes && len(b.places) < maxBundle-2 }

// add adds a page from its memory, as change makes it; nil: as it is.
func (b *bundle) add(place uint32, change func([]byte) []byte) error {
	page, err := b.lanes.raw.Bytes(place)
	if err != nil {
		return err
	}
	if len(page) != int(b.lanes.pageBytes) {
		return errs.New(errs.Internal, "pull: page %d has %d bytes, want %d", place, len(page), b.lanes.pageBytes)
	}
	if page = faultyCopy(page); change != nil {
		page = change(page)
	}
	b.places, b.lengths, b.pages = append(b.places, place), append(b.lengths, uint32(len(page))), append(b.pages, page)
	b.bytes += len(page)
	return nil
}
