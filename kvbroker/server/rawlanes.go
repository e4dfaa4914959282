package server

import (
	"context"
	"crypto/subtle"
	"net"
	"time"

	"leasehold.dev/kvbroker/mover"
	"leasehold.dev/protos/errs"
)

const (
	// maxRaw bounds the connections of raw lanes, and maxOpening those that have not shown a token yet.
	maxRaw, maxOpening = 1024, 64
	// acceptPause is the wait after an accept that failed, which it may do for want of descriptors.
	acceptPause = 10 * time.Millisecond
)

// limits count connections of raw lanes. The Broker's mu guards them.
type limits struct{ open, opening int }

// acceptRaw serves the connections of raw lanes until the listener is closed.
func (b *Broker) acceptRaw() {
	for b.ctx.Err() == nil {
		c, err := b.cfg.Data.Accept()
		if err != nil {
			select {
			case <-time.After(acceptPause):
			case <-b.ctx.Done():
			}
			continue
		}
		if err := b.admitRaw(); err != nil {
			b.rawRefused(c, err)
			continue
		}
		b.wg.Go(func() {
			stop := context.AfterFunc(b.ctx, func() { mover.Sever(c) })
			defer stop()
			if err := b.serveRaw(c); err != nil {
				b.rawRefused(c, err)
			}
			b.mu.Lock()
			b.raw.open--
			b.mu.Unlock()
		})
	}
}

func (b *Broker) rawRefused(c net.Conn, err error) {
	mover.Sever(c)
	b.metrics.refused("raw_lane", err)
	b.cfg.Log.Info("raw lane ended badly", "from", c.RemoteAddr().String(), "error", err)
}

func (b *Broker) admitRaw() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.raw.open >= maxRaw || b.raw.opening >= maxOpening {
		return errs.New(errs.Exhausted, "raw lane: %d are open, at most %d, and %d have not begun, at most %d", b.raw.open, maxRaw,
			b.raw.opening, maxOpening)
	}
	b.raw.open++
	b.raw.opening++
	return nil
}

// serveRaw serves one raw lane, and closes c unless it returns an error.
func (b *Broker) serveRaw(c net.Conn) error {
	conn, l, lane, err := b.openRaw(c)
	b.mu.Lock()
	b.raw.opening--
	b.mu.Unlock()
	if err != nil {
		return err
	}
	return l.lanes.ServeRaw(conn, lane)
}

// openRaw finds out which lane of which Pull a connection is for, in bounded time.
func (b *Broker) openRaw(c net.Conn) (conn net.Conn, l laned, lane uint32, err error) {
	late := time.Now().Add(mover.RawLaneOpening)
	ctx, cancel := context.WithDeadline(b.ctx, late)
	defer cancel()
	if err := c.SetDeadline(late); err != nil {
		return nil, l, 0, errs.Mark(err, errs.Unavailable)
	}
	conn, name, named, err := b.cfg.Wire.Accept(ctx, c)
	if err != nil {
		return nil, l, 0, errs.Mark(err, errs.Denied)
	}
	p, err := mover.ReadPreamble(conn)
	if err != nil {
		return nil, l, 0, err
	}
	if l, err = b.lanesOf(p.Token); err != nil {
		return nil, l, 0, err
	}
	if want := l.p.admission.DecodeBroker; named && name != want {
		return nil, l, 0, errs.New(errs.Denied, "raw lane: the caller's certificate is for broker %q, not %q", name, want)
	}
	return conn, l, p.Lane, errs.Mark(c.SetDeadline(time.Time{}), errs.Unavailable)
}

// lanesOf is the Pull of a token. It looks at each in the same time, whichever it is.
func (b *Broker) lanesOf(token laneToken) (found laned, err error) {
	err = errs.New(errs.Unavailable, "lane: no Pull has this token: it has ended, or never was")
	b.mu.Lock()
	defer b.mu.Unlock()
	for t, l := range b.lanes {
		if subtle.ConstantTimeCompare(t[:], token[:]) == 1 {
			found, err = l, nil
		}
	}
	return found, err
}
