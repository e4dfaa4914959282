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

// Haul is one transfer at the mover process of this broker, told in order.
type Haul interface {
	// Landed waits for the next page that has landed. The error is why the transfer has failed, or ctx's.
	Landed(ctx context.Context) (Landing, error)
	// Send gives the page for a place.
	Send(place, page uint32) error
	// Flush waits until no page that was given is read any more. The error is why the transfer has failed, or ctx's.
	Flush(ctx context.Context) error
	// End asks for the transfer's end. Idempotent.
	End()
	// Drained is closed when nothing reads or writes a page of the transfer any more.
	Drained() <-chan struct{}
}

// Landing is a page that the mover process has received and digested.
type Landing struct {
	Place uint32
	At    time.Time // when its last byte was there
	Found transfer.Found
}

// Window is how many pages of one transfer by ucx are under way: enough that neither side sleeps while the other works, few
// enough that a transfer beside it does not wait for long.
func Window(pageBytes uint64) uint32 {
	const bytes, least, most = 64 << 20, 16, 128
	return uint32(min(max(bytes/max(pageBytes, 1), least), most))
}

// Hauled is an attached Pull whose pages come through the mover process.
type Hauled struct {
	*Stream
	ctx       context.Context // of the whole Pull
	haul      Haul
	pageBytes uint64
}

// OpenHauled opens a Pull whose pages come by haul, which expects them already. See [Open].
func OpenHauled(ctx context.Context, conn grpc.ClientConnInterface, open *brokerv1.PullOpen, haul Haul, pageBytes uint64) (*Hauled, error) {
	s, err := Open(ctx, conn, open)
	if err != nil {
		return nil, err
	}
	return &Hauled{s, ctx, haul, pageBytes}, nil
}

// Drained is closed when nothing writes to the destination any more: after an error of Receive that may take for ever.
func (h *Hauled) Drained() <-chan struct{} { return h.haul.Drained() }

// Close ends the Pull at both sides.
func (h *Hauled) Close() {
	h.haul.End()
	h.Stream.Close()
}

// said is a message of the stream, or its end.
type said struct {
	resp *brokerv1.PullResponse
	err  error // io.EOF: the stream ended well
}

// Receive is [Stream.Receive], with pages from the mover process; but after an error pages may still be written until Drained.
func (h *Hauled) Receive(dst Destination, rx *transfer.Receiver) (*brokerv1.Completion, Moved, error) {
	ctx, stop := context.WithCancel(h.ctx)
	quit := make(chan struct{}) // nobody takes any more; not a context, since the stream's ends before its last message is taken
	h.rx = rx
	in := hauling{Hauled: h, reception: reception{Stream: h.Stream, dst: dst}, came: map[uint32]transfer.Found{}}
	stream, pages := make(chan said), make(chan landing)
	done := make(chan struct{}, 2)
	go func() { h.read(quit, stream); done <- struct{}{} }()
	go func() { h.watch(ctx, quit, pages); done <- struct{}{} }()
	err := in.run(stream, pages)
	stop()
	close(quit)
	if err != nil {
		h.Close()
	}
	<-done
	<-done
	if err != nil {
		return nil, in.moved(), err
	}
	return rx.Completion(), in.moved(), nil
}

// read passes on what comes in the stream, up to the Completion: the rest is End's.
func (h *Hauled) read(quit <-chan struct{}, out chan<- said) {
	for {
		resp := &brokerv1.PullResponse{}
		err := receive(h.cs, &incoming{msg: resp})
		select {
		case out <- said{resp, err}:
		case <-quit:
			return
		}
		if err != nil || resp.GetCompletion() != nil {
			return
		}
	}
}

type landing struct {
	Landing
	err error
}

// watch passes on what lands, up to the first failure.
func (h *Hauled) watch(ctx context.Context, quit <-chan struct{}, out chan<- landing) {
	for {
		l, err := h.haul.Landed(ctx)
		select {
		case out <- landing{l, err}:
		case <-quit:
			return
		}
		if err != nil {
			return
		}
	}
}

// hauling is one Receive: pages land in any order, and are taken in theirs.
type hauling struct {
	*Hauled
	reception
	came map[uint32]transfer.Found // landed, before their turn
	next uint32
	sent *uint32 // pages that were sent, until so many have landed
}

// stallTimeout is how long after Sent, and after each page that lands then, the next may take. By Sent the other side's mover
// process has seen the end of every offer, so what has not landed soon was lost. It fails the Pull; it frees nothing.
const stallTimeout = 5 * time.Second

func (in *hauling) run(stream <-chan said, pages <-chan landing) error {
	stalled := time.NewTimer(stallTimeout)
	defer stalled.Stop()
	for {
		if in.sent == nil {
			stalled.Reset(stallTimeout)
		}
		var p transfer.Progress
		var err error
		select {
		case l := <-pages:
			if err = l.err; err == nil {
				err = in.landed(l.Landing)
			}
			stalled.Reset(stallTimeout)
		case s := <-stream:
			p, err = in.heard(s)
		case <-stalled.C:
			if in.sent != nil {
				_, err = in.reception.step(transfer.Sent{Pages: *in.sent}) // the core says what is missing
			}
		}
		if err != nil {
			return err
		}
		if p.Done {
			return errs.New(errs.Internal, "pull: ended before its completion")
		}
		if p.Completed {
			return in.drain()
		}
	}
}

// drain waits until the mover process has let go of the pages: they may be given away after it. The bytes are there, so it
// has nothing left to wait for; or it is gone.
func (in *hauling) drain() error {
	in.haul.End()
	select {
	case <-in.haul.Drained():
		return nil
	case <-in.ctx.Done():
		return errs.New(errs.Unavailable, "pull: all came, and the mover process does not let go of it: %w", context.Cause(in.ctx))
	}
}

func (in *hauling) landed(l Landing) error {
	if _, twice := in.came[l.Place]; twice || l.Place < in.next {
		return errs.New(errs.Corrupt, "pull: page %d has landed twice", l.Place)
	}
	if in.last = l.At; in.first.IsZero() {
		in.first = l.At
	}
	in.came[l.Place] = l.Found
	for {
		found, ok := in.came[in.next]
		if !ok {
			return in.allSent()
		}
		delete(in.came, in.next)
		if _, err := in.reception.rx.Step(transfer.Part{Place: in.next, Length: in.pageBytes}); err != nil {
			return err
		}
		if err := in.dst.Digested(in.next, found); err != nil {
			return err
		}
		in.next++
	}
}

// allSent passes on Sent when the pages that it counts have landed: it goes another way than they, and may be faster.
func (in *hauling) allSent() error {
	if in.sent == nil || in.next < *in.sent {
		return nil
	}
	n := *in.sent
	in.sent = nil
	_, err := in.reception.step(transfer.Sent{Pages: n})
	return err
}

func (in *hauling) heard(s said) (p transfer.Progress, err error) {
	switch {
	case s.err != nil && in.sent != nil:
		return p, errs.New(errs.Corrupt, "pull: the stream ended after %d of %d pages", in.next, *in.sent)
	case errors.Is(s.err, io.EOF):
		return in.reception.step(transfer.Ended{})
	case s.err != nil:
		return in.reception.step(transfer.Ended{Err: s.err})
	}
	switch k := s.resp.Kind.(type) {
	case *brokerv1.PullResponse_Sent:
		if in.sent != nil {
			return p, errs.New(errs.Corrupt, "pull: sent twice")
		}
		n := k.Sent.GetPages()
		in.sent = &n
		return p, in.allSent()
	case *brokerv1.PullResponse_Completion:
		return in.reception.step(transfer.Completed{Completion: k.Completion})
	}
	return p, errs.New(errs.Corrupt, "pull: %T in the middle of the stream", s.resp.Kind)
}

// ServeHauled answers a Pull whose pages go by haul: see [Serve]. When it has returned, pages may still be read until the
// haul is Drained, which the caller waits for.
func ServeHauled(stream ServerStream, src Lender, haul Haul, pageBytes uint32) error {
	defer haul.End()
	return serve(stream, flushing{src, haul}, pageBytes, giving{src, haul})
}

// giving gives pages to the mover process.
type giving struct {
	src  Lender
	haul Haul
}

func (g giving) send(_ ServerStream, _ Source, place uint32) error {
	page, _, err := g.src.Lend(place)
	if err != nil {
		return err
	}
	return g.haul.Send(place, page)
}

func (giving) flush(ServerStream) error { return nil }

// flushing is a source whose end comes after the end of every offer.
type flushing struct {
	Lender
	haul Haul
}

func (s flushing) Next(ctx context.Context) (uint32, error) {
	place, err := s.Lender.Next(ctx)
	if errors.Is(err, io.EOF) {
		if err := s.haul.Flush(ctx); err != nil {
			return 0, err
		}
	}
	return place, err
}
