package drive

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"

	"leasehold.dev/kvbroker/ucx"
	"leasehold.dev/protos/errs"
	moverv1 "leasehold.dev/protos/gen/leasehold/mover/v1"
)

type driveStream = grpc.BidiStreamingClient[moverv1.DriveRequest, moverv1.DriveResponse]

// teller is both directions of the stream.
type teller struct {
	stream driveStream
	m      *ucx.Mover
	stop   context.CancelCauseFunc

	mu sync.Mutex // of what is sent
}

func send(stream driveStream, r *moverv1.DriveRequest) error {
	err := stream.Send(r)
	if errors.Is(err, io.EOF) { // the broker's own error is with the receiver
		_, err = stream.Recv()
	}
	return errs.FromStatus(err)
}

// events tells the broker what happens, until ctx or the stream ends, or nothing can happen any more.
func (t *teller) events(ctx context.Context) {
	for {
		list, err := t.m.Next(ctx)
		if err != nil {
			t.stop(nil)
			return
		}
		if err := t.tell(list); err != nil {
			t.stop(err)
			return
		}
	}
}

func (t *teller) tell(list []ucx.Event) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range list {
		if _, stuck := e.(ucx.Stuck); stuck {
			return errs.New(errs.Unavailable, "mover: nothing reaches this process any more, not even from itself: a sender was killed while it wrote to it")
		}
		if r := faulty(message(e)); r != nil {
			if err := t.stream.Send(r); err != nil {
				return err
			}
		}
	}
	return nil
}

func message(e ucx.Event) *moverv1.DriveRequest {
	switch e := e.(type) {
	case ucx.Landed:
		return &moverv1.DriveRequest{Kind: &moverv1.DriveRequest_Landed{Landed: &moverv1.Landed{Transfer: e.ID[:], Place: e.Place,
			Digest: e.Digest[:], Nonzero: e.Nonzero, AtUnixNs: e.At.UnixNano()}}}
	case ucx.Sent:
		return &moverv1.DriveRequest{Kind: &moverv1.DriveRequest_Sent{Sent: &moverv1.Sent{Transfer: e.ID[:], Place: e.Place}}}
	case ucx.Failed:
		return failed(e.ID, e.Place, e.Err)
	case ucx.Drained:
		return &moverv1.DriveRequest{Kind: &moverv1.DriveRequest_Drained{Drained: &moverv1.Drained{Transfer: e.ID[:]}}}
	}
	return nil
}

func failed(id ucx.ID, place uint32, err error) *moverv1.DriveRequest {
	return &moverv1.DriveRequest{Kind: &moverv1.DriveRequest_Failed{Failed: &moverv1.Failed{Transfer: id[:], Place: place,
		Code: uint32(errs.KindOf(err).Code()), Reason: err.Error()}}}
}

// commands does what the broker says, until the stream ends. What cannot be done is Failed.
func (t *teller) commands() error {
	for {
		r, err := t.stream.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return errs.New(errs.Unavailable, "mover: the broker ended the stream")
			}
			return errs.FromStatus(err)
		}
		id, place, err := t.do(r)
		var answer *moverv1.DriveRequest
		switch {
		case err != nil:
			answer = failed(id, place, err)
		case r.GetExpect() != nil:
			answer = &moverv1.DriveRequest{Kind: &moverv1.DriveRequest_Expected{Expected: &moverv1.Expected{Transfer: id[:]}}}
		default:
			continue
		}
		t.mu.Lock()
		err = t.stream.Send(answer)
		t.mu.Unlock()
		if err != nil {
			return errs.FromStatus(err)
		}
	}
}

func (t *teller) do(r *moverv1.DriveResponse) (id ucx.ID, place uint32, err error) {
	switch k := r.Kind.(type) {
	case *moverv1.DriveResponse_Expect:
		id = idOf(k.Expect.GetTransfer())
		return id, 0, t.m.Expect(ucx.Expectation{ID: id, Pages: k.Expect.GetPages(), Rows: k.Expect.GetRows(), Window: k.Expect.GetWindow()})
	case *moverv1.DriveResponse_Provide:
		id = idOf(k.Provide.GetTransfer())
		return id, 0, t.m.Provide(id, k.Provide.GetAddress(), k.Provide.GetWindow())
	case *moverv1.DriveResponse_Send:
		id = idOf(k.Send.GetTransfer())
		return id, k.Send.GetPlace(), t.m.Send(id, k.Send.GetPlace(), k.Send.GetPage())
	case *moverv1.DriveResponse_End:
		id = idOf(k.End.GetTransfer())
		return id, 0, t.m.End(id)
	}
	return id, 0, errs.New(errs.Invalid, "mover: %T is none of ours", r.Kind)
}

// idOf is a transfer's; of another length none, which the Mover refuses.
func idOf(b []byte) (id ucx.ID) {
	if len(b) == len(id) {
		copy(id[:], b)
	}
	return id
}
