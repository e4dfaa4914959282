package mover

import (
	"context"

	"google.golang.org/grpc"

	"leasehold.dev/kvbroker/transfer"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/fault"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
)

// View is the pool of a sender on the same host.
type View interface {
	Pages() uint32
	Page(i uint32) []byte
}

// OpenShared opens a Pull whose pages are copied from the sender's pool, as it says where they lie. view stays valid
// until Receive has returned, or for ever when it is not called. See [Open].
func OpenShared(ctx context.Context, conn grpc.ClientConnInterface, open *brokerv1.PullOpen, view View) (*Stream, error) {
	s, err := Open(ctx, conn, open)
	if err == nil {
		s.view = view
	}
	return s, err
}

// copyAll brings the pages that the sender has named, in order.
func (r *reception) copyAll(named *brokerv1.PullPages) error {
	if len(named.Pages) == 0 {
		return errs.New(errs.Corrupt, "pull: no page is named")
	}
	for i, page := range named.Pages {
		if err := r.copy(named.First+uint32(i), page); err != nil {
			return err
		}
	}
	return nil
}

// copy brings a page that the sender has named.
func (r *reception) copy(place, page uint32) error {
	switch {
	case r.over:
		return errs.New(errs.Corrupt, "pull: page %d after the completion", place)
	case r.view == nil:
		return errs.New(errs.Corrupt, "pull: page %d comes without its bytes", place)
	case page >= r.view.Pages():
		return errs.New(errs.Corrupt, "pull: page %d is said to be page %d of a pool of %d", place, page, r.view.Pages())
	}
	from := r.view.Page(page)
	if _, err := r.rx.Step(transfer.Part{Place: place, Length: uint64(len(from))}); err != nil {
		return err
	}
	r.mark()
	err := r.dst.Copy(place, faultyCopy(from))
	r.mark()
	return err
}

// Lender is a Source whose pages the receiver reads itself.
type Lender interface {
	Source
	// Lend says where a page lies that Next returned, and whether Next would return another at once. From then on the receiver
	// may read it.
	Lend(place uint32) (page uint32, more bool, err error)
}

// ServeShared answers a Pull by shared memory: see [Serve]. When it returns an error, the receiver may still read pages
// that it was lent: whoever called waits for its word, or for the end of its process.
func ServeShared(stream ServerStream, src Lender, pageBytes uint32) error {
	l := &lending{src: src}
	return serve(stream, src, pageBytes, l)
}

// lending names pages to the receiver, those that are sealed together in one message.
type lending struct {
	src   Lender
	named brokerv1.PullPages
}

func (l *lending) send(stream ServerStream, _ Source, place uint32) error {
	page, more, err := l.src.Lend(place)
	if err != nil {
		return err
	}
	if n := uint32(len(l.named.Pages)); n > 0 && place != l.named.First+n {
		if err := l.flush(stream); err != nil {
			return err
		}
	}
	if len(l.named.Pages) == 0 {
		l.named.First = place
	}
	l.named.Pages = append(l.named.Pages, page)
	if more && len(l.named.Pages) < maxNamed && !fault.Armed(fault.MoverWire) { // its passings are counted in pages
		return nil
	}
	return l.flush(stream)
}

// maxNamed bounds the pages of one message.
const maxNamed = 4096

func (l *lending) flush(stream ServerStream) error {
	if len(l.named.Pages) == 0 {
		return nil
	}
	m := &brokerv1.PullPages{First: l.named.First, Pages: l.named.Pages}
	l.named.Pages = nil
	return errs.FromStatus(stream.SendMsg(&brokerv1.PullResponse{Kind: &brokerv1.PullResponse_Pages{Pages: m}}))
}
