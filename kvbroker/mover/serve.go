package mover

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc/metadata"

	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
)

// Source is the sending side of one Pull, from the moment it is parked. Its methods fail once the lease has ended
// badly, with why.
type Source interface {
	// Next waits for the next sealed page, in order; io.EOF after the last.
	Next(ctx context.Context) (place uint32, err error)
	// Read copies len(dst) bytes at off of a page that Next returned.
	Read(place, off uint32, dst []byte) error
	// Complete makes the Completion after the receiver has acknowledged so many pages and bytes.
	Complete(pages uint32, bytes uint64) (*brokerv1.Completion, error)
	// Settle looks at the pages once more, after the Completion went out: an error when one is not what was sealed.
	Settle() error
}

// ServerStream is the part of a gRPC stream that Serve needs.
type ServerStream interface {
	Context() context.Context
	SendMsg(any) error
	RecvMsg(any) error
}

// ReceiveOpen reads the first message of a Pull.
func ReceiveOpen(stream ServerStream) (*brokerv1.PullOpen, error) {
	if err := CheckSubtype(stream.Context()); err != nil {
		return nil, err
	}
	req := &brokerv1.PullRequest{}
	if err := receiveFrom(stream, req); err != nil {
		return nil, err
	}
	if req.GetOpen() == nil {
		return nil, errs.New(errs.Invalid, "pull: the first message is %T, want Open", req.Kind)
	}
	return req.GetOpen(), nil
}

// CheckSubtype says whether a call's messages are in the codec that pages need.
func CheckSubtype(ctx context.Context) error {
	if ct := metadata.ValueFromIncomingContext(ctx, "content-type"); len(ct) != 1 || ct[0] != "application/grpc+"+Subtype {
		return errs.New(errs.Invalid, "pull: content type %q, want application/grpc+%s", ct, Subtype)
	}
	return nil
}

// Serve answers a Pull that was parked as src: Attached, pages as they seal, Sent, and, after the acknowledgement, the
// Completion; then, when asked, the source's second look, whose result is the stream's end. When it returns, page memory is not read any
// more.
func Serve(stream ServerStream, src Source, pageBytes uint32) error {
	return serve(stream, src, pageBytes, sending(pageBytes))
}

// sender brings sealed pages to the receiver.
type sender interface {
	send(stream ServerStream, src Source, place uint32) error
	flush(stream ServerStream) error // sends what was kept back
}

// sending puts pages of so many bytes into the stream.
type sending uint32

func (n sending) send(stream ServerStream, src Source, place uint32) error {
	return sendPage(stream, src, place, uint32(n))
}

func (sending) flush(ServerStream) error { return nil }

func serve(stream ServerStream, src Source, pageBytes uint32, out sender) error {
	stream, src = faultyStream(stream), faultySource(src, pageBytes)
	err := stream.SendMsg(&brokerv1.PullResponse{Kind: &brokerv1.PullResponse_Attached{Attached: &brokerv1.PullAttached{}}})
	if err != nil {
		return errs.FromStatus(err)
	}
	pages := uint32(0)
	for {
		place, err := src.Next(stream.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = out.send(stream, src, place)
		}
		if err != nil {
			return err
		}
		pages++
	}
	if err := out.flush(stream); err != nil {
		return err
	}
	err = stream.SendMsg(&brokerv1.PullResponse{Kind: &brokerv1.PullResponse_Sent{Sent: &brokerv1.PullSent{Pages: pages}}})
	if err != nil {
		return errs.FromStatus(err)
	}
	return complete(stream, src)
}

// pageReader is the part of a Source that a page is read from.
type pageReader interface {
	Read(place, off uint32, dst []byte) error
}

func sendPage(stream ServerStream, src pageReader, place, pageBytes uint32) error {
	for off := uint32(0); off < pageBytes; {
		n := min(maxPart, pageBytes-off)
		p, err := newPart(place, off, n, func(dst []byte) error { return src.Read(place, off, dst) })
		if err != nil {
			return err
		}
		if err := stream.SendMsg(p); err != nil {
			return errs.FromStatus(err)
		}
		off += n
	}
	return nil
}

func complete(stream ServerStream, src Source) error {
	req := &brokerv1.PullRequest{}
	if err := receiveFrom(stream, req); err != nil {
		return err
	}
	got := req.GetReceived()
	if got == nil {
		return errs.New(errs.Invalid, "pull: %T after the pages, want Received", req.Kind)
	}
	c, err := src.Complete(got.Pages, got.Bytes)
	if err != nil {
		return err
	}
	err = stream.SendMsg(&brokerv1.PullResponse{Kind: &brokerv1.PullResponse_Completion{Completion: c}})
	if err != nil {
		return errs.FromStatus(err)
	}
	req = &brokerv1.PullRequest{}
	if err := receiveFrom(stream, req); err != nil {
		return err
	}
	if req.GetSettle() == nil {
		return errs.New(errs.Invalid, "pull: %T after the completion, want Settle", req.Kind)
	}
	return src.Settle()
}

func receiveFrom(stream ServerStream, req *brokerv1.PullRequest) error {
	err := receive(stream, &incoming{msg: req})
	if errors.Is(err, io.EOF) {
		return errs.New(errs.Invalid, "pull: the receiver ended its side early")
	}
	return err
}
