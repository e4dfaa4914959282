package mover

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"

	"leasehold.dev/kvbroker/transfer"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
)

// lanes are what a Stream has beside its own: each is received by a goroutine, which ends before Receive does.
type lanes struct {
	token      []byte
	streams    []grpc.ClientStream // of lane 1 and on
	raw        []net.Conn          // of lane 0 and on, when lanes are raw
	receptions []*reception
	wait       sync.WaitGroup

	mu    sync.Mutex // of the core, and of
	first error      // with which the Pull ended
	// broken is how a raw lane ended; late makes that the Pull's end if nothing else does.
	broken error
	late   *time.Timer
}

// openLane opens a lane after Attached. Its stream lives no longer than the Pull's ctx.
func (s *Stream) openLane(ctx context.Context, conn grpc.ClientConnInterface, lane uint32) error {
	cs, err := conn.NewStream(ctx, &brokerv1.PeerService_ServiceDesc.Streams[1], brokerv1.PeerService_Lane_FullMethodName,
		grpc.CallContentSubtype(Subtype), grpc.MaxCallRecvMsgSize(maxControl))
	if err != nil {
		return errs.FromStatus(err)
	}
	if err = cs.SendMsg(&brokerv1.LaneRequest{LaneToken: s.lanes.token, Lane: lane}); err == nil {
		err = cs.CloseSend()
	}
	if err != nil && !errors.Is(err, io.EOF) { // EOF: the peer has ended it, and says why when it is read
		return errs.FromStatus(err)
	}
	s.lanes.streams = append(s.lanes.streams, cs)
	return nil
}

func (s *Stream) startLanes(dst Destination) {
	for i, cs := range s.lanes.streams {
		r := &reception{Stream: s, dst: dst, lane: uint32(i) + 1}
		s.lanes.receptions = append(s.lanes.receptions, r)
		s.lanes.wait.Go(func() {
			for ended := false; !ended; {
				var err error
				if ended, err = r.nextOf(cs); err != nil {
					_ = s.fail(err)
					return
				}
			}
		})
	}
}

// nextOf takes one message of a lane.
func (r *reception) nextOf(cs grpc.ClientStream) (ended bool, err error) {
	in := &incoming{msg: &brokerv1.LaneResponse{}, place: r.place}
	switch err := receive(cs, in); {
	case errors.Is(err, io.EOF):
		_, err = r.advance(transfer.LaneEnded{Lane: r.lane})
		return true, err
	case err != nil && in.err != nil: // not the stream's end: what came is wrong
		return false, err
	case err != nil:
		_, err = r.advance(transfer.LaneEnded{Lane: r.lane, Err: err})
		return false, err
	case !in.part:
		return false, errs.New(errs.Corrupt, "pull: lane %d brings a message", r.lane)
	}
	r.mark()
	if r.progress.Landed {
		return false, r.dst.Landed(r.progress.Place)
	}
	return false, nil
}

// advance steps the core, which all lanes share.
func (s *Stream) advance(a transfer.Arrival) (transfer.Progress, error) {
	s.lanes.mu.Lock()
	defer s.lanes.mu.Unlock()
	return s.rx.Step(a)
}

// fail ends the Pull on every lane, and returns the error with which it ended first: the others only follow.
func (s *Stream) fail(err error) error {
	s.lanes.mu.Lock()
	if s.lanes.first == nil {
		s.lanes.first = err
	}
	err = s.lanes.first
	s.lanes.mu.Unlock()
	s.Close()
	return err
}

// joinLanes waits for the lanes' ends, and says whether the Pull has failed.
func (s *Stream) joinLanes() error {
	s.lanes.wait.Wait()
	s.lanes.mu.Lock()
	defer s.lanes.mu.Unlock()
	if s.lanes.first == nil {
		return s.lanes.broken
	}
	return s.lanes.first
}
