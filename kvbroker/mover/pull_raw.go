package mover

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"

	"leasehold.dev/kvbroker/transfer"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
)

// lastWord is how long a Pull whose raw lane broke waits for its stream to say why.
const lastWord = time.Second

// RawDialer connects to the sender's data address, and has proven that it is the sender's.
type RawDialer func(context.Context) (net.Conn, error)

// OpenRaw opens a Pull whose pages come over n raw lanes, at most as many as there are pages: see [Open]. A lane that cannot be
// opened is Unavailable.
func OpenRaw(ctx context.Context, conn grpc.ClientConnInterface, open *brokerv1.PullOpen, n int, dial RawDialer) (*Stream, error) {
	ctx, stop := context.WithCancel(ctx)
	s := &Stream{stop: stop}
	n = max(1, min(n, MaxLanes, int(open.Pages)))
	open.Lanes, open.RawLanes = uint32(n), true
	err := s.open(ctx, conn, open)
	if err == nil {
		err = s.dialRaw(ctx, n, dial)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// dialRaw opens all lanes at once. None of them outlives ctx.
func (s *Stream) dialRaw(ctx context.Context, n int, dial RawDialer) error {
	s.lanes.raw = make([]net.Conn, n)
	all := make([]error, n)
	var wg sync.WaitGroup
	for lane := range n {
		wg.Go(func() {
			c, err := dial(ctx)
			if err != nil {
				all[lane] = errs.New(errs.Unavailable, "pull: raw lane %d: %v", lane, err) // whatever its kind: the peer cannot be reached
				return
			}
			context.AfterFunc(ctx, func() { Sever(c) })
			s.lanes.raw[lane] = c
			p := Preamble{Lane: uint32(lane), Token: [TokenSize]byte(s.lanes.token)}
			_ = c.SetWriteDeadline(time.Now().Add(RawLaneOpening))
			if _, err := c.Write(p.bytes()); err != nil {
				all[lane] = errs.New(errs.Unavailable, "pull: raw lane %d: its preamble: %v", lane, err)
			}
		})
	}
	wg.Wait()
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Stream) startRaw(dst Destination) {
	for lane, c := range s.lanes.raw {
		r := &reception{Stream: s, dst: dst, lane: uint32(lane)}
		s.lanes.receptions = append(s.lanes.receptions, r)
		s.lanes.wait.Go(func() {
			defer Sever(c)
			for ended := false; !ended; {
				var broken bool
				var err error
				switch ended, broken, err = r.nextRaw(c); {
				case broken:
					s.breakRaw(err)
					return
				case err != nil:
					_ = s.fail(err)
					return
				}
			}
		})
	}
}

// nextRaw takes one bundle, each page straight into its memory.
func (r *reception) nextRaw(c net.Conn) (ended, broken bool, err error) {
	var head [bundleCount + bundleEntry*maxBundle]byte
	const first = bundleCount + bundleEntry
	if _, err := io.ReadFull(c, head[:first]); err != nil {
		return false, true, errs.New(errs.Unavailable, "pull: raw lane %d has broken: %v", r.lane, err)
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n == 0 {
		if r.lane > 0 { // the core takes what is sent on lane 0 for all that is missing there
			_, err = r.advance(transfer.LaneEnded{Lane: r.lane})
		}
		return true, false, err
	}
	if n > maxBundle {
		return false, false, errs.New(errs.Corrupt, "pull: %d pages at once over raw lane %d, at most %d", n, r.lane, maxBundle)
	}
	end := bundleCount + bundleEntry*n
	if _, err := io.ReadFull(c, head[first:end]); err != nil {
		return false, true, errs.New(errs.Unavailable, "pull: raw lane %d has broken: %v", r.lane, err)
	}
	for at := head[bundleCount:end]; len(at) > 0 && err == nil; at = at[bundleEntry:] {
		broken, err = r.pageRaw(c, binary.LittleEndian.Uint32(at), binary.LittleEndian.Uint32(at[4:]))
	}
	return false, broken, err
}

// pageRaw takes one page. What the header says of it is checked before a byte of it is read.
func (r *reception) pageRaw(c net.Conn, place, n uint32) (broken bool, err error) {
	to, err := r.place(place, 0, n)
	if err == nil && !r.progress.Landed {
		err = errs.New(errs.Corrupt, "pull: page %d with %d bytes over raw lane %d, where pages come whole", place, n, r.lane)
	}
	if err != nil {
		return false, err
	}
	r.mark()
	if _, err := io.ReadFull(c, to); err != nil {
		return true, errs.New(errs.Unavailable, "pull: raw lane %d has broken in page %d: %v", r.lane, place, err)
	}
	r.mark()
	return false, r.dst.Landed(place)
}

// breakRaw closes all lanes since one has broken. If the sender ended them, the Pull's stream says why: that counts, when it
// comes in time.
func (s *Stream) breakRaw(err error) {
	s.lanes.mu.Lock()
	defer s.lanes.mu.Unlock()
	if s.lanes.broken != nil {
		return
	}
	s.lanes.broken = err
	s.lanes.late = time.AfterFunc(lastWord, func() { _ = s.fail(err) })
	s.severAll()
}

func (s *Stream) severAll() {
	for _, c := range s.lanes.raw {
		if c != nil {
			Sever(c)
		}
	}
}
