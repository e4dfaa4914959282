package mover

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"sync"

	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
)

const (
	// MaxLanes is the most that a Pull may have.
	MaxLanes = 16
	// TokenSize is that of the value by which a lane names its Pull.
	TokenSize = 32
	// queued is how many places may wait for a lane before the others wait too.
	queued = 64
)

// Lanes is the sending side of a Pull whose pages go over several streams: place p over lane p % n. The Pull's handler calls
// [Lanes.ServePull] once, the handler of each further lane [Lanes.Serve]. However one of them ends badly, all do, and with the
// first one's error. It is safe for concurrent use.
type Lanes struct {
	token     []byte
	src       Source
	raw       Holder // src as it is, of raw lanes; else nil
	pageBytes uint32
	queues    []chan uint32 // of places; closed after the last
	over      chan struct{} // closed at the end, good or bad
	sent      chan struct{} // closed when every lane has sent its pages

	reads sync.RWMutex // held while page memory is read
	mu    sync.Mutex
	taken []bool
	conns map[net.Conn]struct{} // of raw lanes
	left  int                   // lanes that have not sent all their pages
	ended bool                  // over is closed
	err   error                 // why, when that was bad
}

// NewLanes makes n lanes, 2 to MaxLanes, for the pages of src. Its methods Next, Complete and Settle are called by one goroutine
// at a time, Read by several.
func NewLanes(n uint32, src Source, pageBytes uint32) (*Lanes, error) {
	if n < 2 || n > MaxLanes {
		return nil, errs.New(errs.Invalid, "pull: %d lanes, want 2 to %d", n, MaxLanes)
	}
	l := newLanes(n, src, pageBytes)
	l.taken[0] = true // the Pull's own stream
	return l, nil
}

func newLanes(n uint32, src Source, pageBytes uint32) *Lanes {
	l := &Lanes{token: make([]byte, TokenSize), src: faultySource(src, pageBytes), pageBytes: pageBytes, queues: make([]chan uint32, n),
		over: make(chan struct{}), sent: make(chan struct{}), taken: make([]bool, n), left: int(n)}
	_, _ = rand.Read(l.token) // never fails
	for i := range l.queues {
		l.queues[i] = make(chan uint32, queued)
	}
	return l
}

// Token is what a lane must present: only the Pull's receiver learns it.
func (l *Lanes) Token() []byte { return l.token }

// ServePull answers the Pull: see [Serve]. When it returns, page memory is not read any more, whatever lanes still do.
func (l *Lanes) ServePull(stream ServerStream) (err error) {
	stream = faultyStream(stream)
	ctx, stop := context.WithCancel(stream.Context())
	var dispatcher sync.WaitGroup
	defer func() {
		err = l.end(err)
		stop()
		dispatcher.Wait()
	}()
	attached := &brokerv1.PullAttached{LaneToken: l.token}
	if err := stream.SendMsg(&brokerv1.PullResponse{Kind: &brokerv1.PullResponse_Attached{Attached: attached}}); err != nil {
		return errs.FromStatus(err)
	}
	pages := uint32(0)
	dispatcher.Go(func() { pages = l.dispatch(ctx) })
	if !l.Raw() {
		if err := l.send(ctx, stream, 0); err != nil {
			return err
		}
	}
	select {
	case <-l.sent:
	case <-l.over:
		return l.why()
	case <-ctx.Done():
		return errs.New(errs.Unavailable, "pull: the receiver is gone: %w", context.Cause(ctx))
	}
	dispatcher.Wait() // it has closed the queues
	if err := stream.SendMsg(&brokerv1.PullResponse{Kind: &brokerv1.PullResponse_Sent{Sent: &brokerv1.PullSent{Pages: pages}}}); err != nil {
		return errs.FromStatus(err)
	}
	return complete(stream, l.src)
}

// Serve sends the pages of a further lane, each once. The error is Invalid for a lane that is not there or was served before.
func (l *Lanes) Serve(stream ServerStream, lane uint32) error {
	if err := l.take(lane, nil); err != nil {
		return err
	}
	if err := l.send(stream.Context(), faultyStream(stream), lane); err != nil {
		return l.end(err)
	}
	return nil
}

// take makes a lane its caller's, c being the connection of a raw one.
func (l *Lanes) take(lane uint32, c net.Conn) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.Raw() != (c != nil):
		return errs.New(errs.Invalid, "pull: lane %d is raw: %v, the Pull's are: %v", lane, c != nil, l.Raw())
	case uint64(lane) >= uint64(len(l.queues)):
		return errs.New(errs.Invalid, "pull: lane %d of %d", lane, len(l.queues))
	case l.taken[lane]:
		return errs.New(errs.Invalid, "pull: lane %d was opened before", lane)
	case l.ended:
		return errs.New(errs.Unavailable, "pull: lane %d is opened after its end", lane)
	}
	l.taken[lane] = true
	if c != nil {
		l.conns[c] = struct{}{}
	}
	return nil
}

// dispatch gives each lane its places, in order, and counts them.
func (l *Lanes) dispatch(ctx context.Context) (pages uint32) {
	for {
		place, err := l.src.Next(ctx)
		if errors.Is(err, io.EOF) {
			for _, q := range l.queues {
				close(q)
			}
			return pages
		}
		if err != nil {
			_ = l.end(err)
			return pages
		}
		select {
		case l.queues[place%uint32(len(l.queues))] <- place:
			pages++
		case <-l.over:
			return pages
		case <-ctx.Done():
			_ = l.end(errs.New(errs.Unavailable, "pull: the receiver is gone: %w", context.Cause(ctx)))
			return pages
		}
	}
}

// send sends the places of a lane's queue over its stream.
func (l *Lanes) send(ctx context.Context, stream ServerStream, lane uint32) error {
	for {
		select {
		case place, ok := <-l.queues[lane]:
			if !ok {
				l.done()
				return nil
			}
			if err := sendPage(stream, l, place, l.pageBytes); err != nil {
				return err
			}
		case <-l.over:
			return l.why()
		case <-ctx.Done():
			return errs.New(errs.Unavailable, "pull: lane %d is gone: %w", lane, context.Cause(ctx))
		}
	}
}

// Read reads page memory as long as the Pull is not over.
func (l *Lanes) Read(place, off uint32, dst []byte) error {
	l.reads.RLock()
	defer l.reads.RUnlock()
	select {
	case <-l.over:
		return l.why()
	default:
		return l.src.Read(place, off, dst)
	}
}

// done says that a lane has sent all its pages.
func (l *Lanes) done() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left--; l.left == 0 {
		close(l.sent)
	}
}

// end ends the Pull, closes raw lanes, waits for those who read pages, and returns the error with which it ended first.
func (l *Lanes) end(err error) error {
	l.mu.Lock()
	if !l.ended {
		l.ended, l.err = true, err
		close(l.over)
		for c := range l.conns { // who writes a page to one returns
			Sever(c)
		}
	}
	err = l.err
	l.mu.Unlock()
	l.reads.Lock() // no Read begins any more
	defer l.reads.Unlock()
	return err
}

func (l *Lanes) why() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		return errs.New(errs.Unavailable, "pull: it has ended")
	}
	return l.err
}
