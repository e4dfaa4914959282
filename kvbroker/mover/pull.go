package mover

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"

	"leasehold.dev/kvbroker/transfer"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
)

// Destination is the memory that pages arrive in.
type Destination interface {
	// Page is the memory of a place. It is written until the place has landed, or the end of Receive. A Pull with more lanes
	// than one calls the methods from a goroutine of each, for different places.
	Page(place uint32) ([]byte, error)
	// Landed says that all bytes of a place are there, in order.
	Landed(place uint32) error
	// Digested is Landed of a page that was digested where it lies, after it had arrived.
	Digested(place uint32, found transfer.Found) error
	// Copy brings a place from memory that the sender may still write, and lands it. It returns when it does not read
	// that memory any more.
	Copy(place uint32, from []byte) error
}

// Moved counts what a Receive brought.
type Moved struct {
	Pages uint32
	Bytes uint64
	Took  time.Duration // from the first part to the last
	Last  time.Time     // when that came
}

// Stream is an attached Pull over gRPC. One goroutine uses it.
type Stream struct {
	cs    grpc.ClientStream
	stop  context.CancelFunc
	lanes lanes
	view  View // of a Pull by shared memory: the sender's pool
	rx    *transfer.Receiver
}

// Open opens a Pull and returns when the peer has attached it. ctx bounds the whole Pull; its end, or Close, tells the
// peer at once. With more connections to the peer, pages come over a lane on each of them too; open then says how many
// lanes there are, which is at most its pages.
func Open(ctx context.Context, conn grpc.ClientConnInterface, open *brokerv1.PullOpen, more ...grpc.ClientConnInterface) (*Stream, error) {
	ctx, stop := context.WithCancel(ctx)
	s := &Stream{stop: stop}
	more = more[:min(len(more), MaxLanes-1, int(max(open.Pages, 1))-1)]
	if open.Lanes = uint32(len(more)) + 1; len(more) == 0 {
		open.Lanes = 0
	}
	err := s.open(ctx, conn, open)
	for i, c := range more {
		if err == nil {
			err = s.openLane(ctx, c, uint32(i)+1)
		}
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Stream) open(ctx context.Context, conn grpc.ClientConnInterface, open *brokerv1.PullOpen) error {
	var err error
	s.cs, err = conn.NewStream(ctx, &brokerv1.PeerService_ServiceDesc.Streams[0], brokerv1.PeerService_Pull_FullMethodName,
		grpc.CallContentSubtype(Subtype), grpc.MaxCallRecvMsgSize(maxControl))
	if err != nil {
		return errs.FromStatus(err)
	}
	if err := s.send(&brokerv1.PullRequest{Kind: &brokerv1.PullRequest_Open{Open: open}}); err != nil {
		return err
	}
	resp := &brokerv1.PullResponse{}
	if err := s.receive(&incoming{msg: resp}); err != nil {
		return err
	}
	if resp.GetAttached() == nil {
		return errs.New(errs.Corrupt, "pull: the first answer is %T, want Attached", resp.Kind)
	}
	s.lanes.token = resp.GetAttached().LaneToken
	if len(s.lanes.token) != TokenSize && (open.Lanes > 1 || open.RawLanes) {
		return errs.New(errs.Corrupt, "pull: lane token of %d bytes, want %d", len(s.lanes.token), TokenSize)
	}
	return nil
}

// Close ends the Pull; before its Completion that is a cancel.
func (s *Stream) Close() {
	s.stop()
	s.severAll()
	s.lanes.mu.Lock()
	defer s.lanes.mu.Unlock()
	if s.lanes.late != nil {
		s.lanes.late.Stop()
	}
}

// send turns the bare io.EOF of a stream that the peer has ended into the peer's own error.
func (s *Stream) send(m any) error {
	err := s.cs.SendMsg(m)
	if errors.Is(err, io.EOF) {
		return s.receive(&incoming{msg: &brokerv1.PullResponse{}})
	}
	return errs.FromStatus(err)
}

func (s *Stream) receive(in *incoming) error {
	err := receive(s.cs, in)
	if errors.Is(err, io.EOF) {
		return errs.New(errs.Corrupt, "pull: the stream ended without a completion")
	}
	return err
}

// Receive takes pages until the peer says that it has sent all, acknowledges them, and returns the Completion. rx decides
// what may come next; it is fresh. On error nothing of what arrived may be used. It is called once; when it has returned,
// nothing touches the pages any more, on either side.
func (s *Stream) Receive(dst Destination, rx *transfer.Receiver) (*brokerv1.Completion, Moved, error) {
	s.rx = rx
	n := len(s.lanes.raw)
	if n == 0 {
		n = len(s.lanes.streams) + 1
	}
	if n > 1 {
		if err := rx.Split(uint32(n)); err != nil {
			s.Close()
			return nil, Moved{}, err
		}
	}
	s.startLanes(dst)
	s.startRaw(dst)
	r := reception{Stream: s, dst: dst}
	for {
		p, err := r.next()
		if err == nil && p.Done {
			err = errs.New(errs.Internal, "pull: ended before its completion")
		}
		if err != nil {
			err = s.fail(err)
			s.lanes.wait.Wait()
			return nil, r.moved(), err
		}
		if p.Completed {
			return rx.Completion(), r.moved(), nil
		}
	}
}

// End asks the sender for its second look and waits for the end of the stream: nil when its pages are still what was sealed.
// It is called once, after a Receive without error.
func (s *Stream) End() error {
	defer s.Close()
	if err := s.send(&brokerv1.PullRequest{Kind: &brokerv1.PullRequest_Settle{Settle: &brokerv1.PullSettle{}}}); err != nil {
		return err
	}
	r := reception{Stream: s, over: true}
	for {
		if p, err := r.next(); err != nil || p.Done {
			return err
		}
	}
}

// reception is one Receive: it carries messages to the core and does what the core answers.
type reception struct {
	*Stream
	lane        uint32
	dst         Destination
	over        bool              // no page may come any more
	progress    transfer.Progress // of the part that is being received
	first, last time.Time
}

func (r *reception) moved() Moved {
	for _, l := range r.lanes.receptions {
		if !l.first.IsZero() && (r.first.IsZero() || l.first.Before(r.first)) {
			r.first = l.first
		}
		if l.last.After(r.last) {
			r.last = l.last
		}
	}
	return Moved{Pages: r.rx.Pages(), Bytes: r.rx.Bytes(), Took: r.last.Sub(r.first), Last: r.last}
}

// next takes one message.
func (r *reception) next() (p transfer.Progress, err error) {
	resp := &brokerv1.PullResponse{}
	in := &incoming{msg: resp, place: r.place}
	if r.lanes.raw != nil {
		in.place = nil // no part belongs here
	}
	switch err := receive(r.cs, in); {
	case errors.Is(err, io.EOF):
		return r.step(transfer.Ended{})
	case err != nil && in.err != nil: // not the stream's end: what came is wrong
		return p, err
	case err != nil:
		return r.step(transfer.Ended{Err: err})
	}
	if in.part {
		r.mark()
		if r.progress.Landed {
			return p, r.dst.Landed(r.progress.Place)
		}
		return p, nil
	}
	switch k := resp.Kind.(type) {
	case *brokerv1.PullResponse_Pages:
		return p, r.copyAll(k.Pages)
	case *brokerv1.PullResponse_Sent:
		if err := r.joinLanes(); err != nil {
			return p, err
		}
		return r.step(transfer.Sent{Pages: k.Sent.GetPages()})
	case *brokerv1.PullResponse_Completion:
		return r.step(transfer.Completed{Completion: k.Completion})
	}
	return p, errs.New(errs.Corrupt, "pull: %T in the middle of the stream", resp.Kind)
}

// mark keeps when something of the pages came.
func (r *reception) mark() {
	if r.last = time.Now(); r.first.IsZero() {
		r.first = r.last
	}
}

func (r *reception) step(a transfer.Arrival) (transfer.Progress, error) {
	p, err := r.advance(a)
	if err == nil && p.Received {
		err = r.send(&brokerv1.PullRequest{Kind: &brokerv1.PullRequest_Received{
			Received: &brokerv1.PullReceived{Pages: r.rx.Pages(), Bytes: r.rx.Bytes()}}})
	}
	return p, err
}

// place names the memory of a part that the core takes.
func (r *reception) place(place, off, n uint32) ([]byte, error) {
	if r.over {
		return nil, errs.New(errs.Corrupt, "pull: a part of page %d after the completion", place)
	}
	if r.view != nil {
		return nil, errs.New(errs.Corrupt, "pull: a part of page %d, which is in the sender's pool", place)
	}
	var err error
	if r.progress, err = r.advance(transfer.LanePart{Part: transfer.Part{Place: place, Offset: off, Length: uint64(n)}, Lane: r.lane}); err != nil {
		return nil, err
	}
	page, err := r.dst.Page(place)
	if err != nil {
		return nil, err
	}
	if uint64(off)+uint64(n) > uint64(len(page)) {
		return nil, errs.New(errs.Corrupt, "pull: part of %d bytes at %d of a page of %d", n, off, len(page))
	}
	return page[off : off+n], nil
}
