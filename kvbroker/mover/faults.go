//go:build faults

package mover

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"leasehold.dev/protos/fault"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
)

// faultySource wraps the sending side of any mover with the points mover/page, mover/read and mover/complete.
func faultySource(src Source, pageBytes uint32) Source {
	return &badSource{Source: src, pageBytes: pageBytes}
}

type badSource struct {
	Source
	pageBytes uint32
	queue     []uint32 // places that come next, before the source's own
	last      bool     // the source has none left
}

func (s *badSource) Next(ctx context.Context) (uint32, error) {
	if len(s.queue) > 0 {
		place := s.queue[0]
		s.queue = s.queue[1:]
		return place, nil
	}
	if s.last {
		return 0, io.EOF
	}
	place, err := s.Source.Next(ctx)
	if err != nil {
		return place, err
	}
	switch fault.At(fault.MoverPage) {
	case fault.Drop:
		return s.Next(ctx)
	case fault.Duplicate:
		s.queue = append(s.queue, place)
	case fault.Reorder:
		next, err := s.Source.Next(ctx)
		if errors.Is(err, io.EOF) {
			s.last = true
			return place, nil
		}
		s.queue = append(s.queue, place)
		return next, err
	}
	return place, nil
}

func (s *badSource) Read(place, off uint32, dst []byte) error {
	err := s.Source.Read(place, off, dst)
	if err != nil {
		return err
	}
	switch fault.At(fault.MoverRead) {
	case fault.Corrupt:
		dst[fault.N(fault.MoverRead)%len(dst)] ^= 0x10
	case fault.Truncate:
		clear(dst[len(dst)/2:])
	}
	return nil
}

func (s *badSource) Complete(pages uint32, size uint64) (*brokerv1.Completion, error) {
	c, err := s.Source.Complete(pages, size)
	if err != nil {
		return c, err
	}
	switch fault.At(fault.MoverComplete) {
	case fault.Drop:
		return nil, nil
	case fault.Corrupt:
		c = proto.Clone(c).(*brokerv1.Completion)
		c.Mac[0] ^= 1
	case fault.Truncate:
		c = proto.Clone(c).(*brokerv1.Completion)
		c.Mac = nil
	case fault.StaleEpoch:
		c = proto.Clone(c).(*brokerv1.Completion)
		c.Epoch--
	}
	return c, nil
}

// faultyCopy is what a receiver by shared memory reads, with the point mover/read: bytes that change on their way are a
// copy, so that the sender's page stays as it is.
func faultyCopy(from []byte) []byte {
	switch fault.At(fault.MoverRead) {
	case fault.Corrupt:
		from = bytes.Clone(from)
		from[fault.N(fault.MoverRead)%len(from)] ^= 0x10
	case fault.Truncate:
		from = bytes.Clone(from)
		clear(from[len(from)/2:])
	}
	return from
}

// faultyStream wraps what goes over the wire with the point mover/wire.
func faultyStream(s ServerStream) ServerStream { return &badStream{ServerStream: s} }

type badStream struct {
	ServerStream
	late   any  // goes out after the next
	silent bool // nothing more is said, nor heard: the receiver's Settle is made up
}

func (s *badStream) RecvMsg(m any) error {
	in, ok := m.(*incoming)
	if !s.silent || !ok {
		return s.ServerStream.RecvMsg(m)
	}
	proto.Merge(in.msg, &brokerv1.PullRequest{Kind: &brokerv1.PullRequest_Settle{Settle: &brokerv1.PullSettle{}}})
	return nil
}

func (s *badStream) SendMsg(m any) error {
	var again any
	switch fault.At(fault.MoverWire) {
	case fault.Drop:
		return nil
	case fault.Duplicate:
		again = copyOf(m)
	case fault.Reorder:
		if s.late == nil {
			s.late = m
			return nil
		}
	case fault.Truncate:
		m = misnamed(m, 0)
		m = changed(m, func(b []byte) []byte { return b[:max(partHeader+1, len(b)/2)] })
	case fault.Corrupt:
		m = misnamed(m, 1<<(fault.N(fault.MoverWire)%32))
		m = changed(m, func(b []byte) []byte { b[len(b)-1-fault.N(fault.MoverWire)%(len(b)-partHeader)] ^= 0x10; return b })
	}
	if r, ok := m.(*brokerv1.PullResponse); ok && r.GetCompletion() == nil && r.GetAttached() == nil && r.GetSent() == nil && r.GetPages() == nil {
		s.silent = true // a Completion that was dropped: the stream ends well without it
		return nil
	}
	err := s.ServerStream.SendMsg(m)
	for _, next := range []any{s.late, again} {
		if next != nil && err == nil {
			err = s.ServerStream.SendMsg(next)
		}
	}
	s.late = nil
	return err
}

func copyOf(m any) any { return changed(m, func(b []byte) []byte { return b }) }

// misnamed is m with these bits of its first page's name flipped, or without any name, when it names pages.
func misnamed(m any, flip uint32) any {
	r, ok := m.(*brokerv1.PullResponse)
	if !ok || r.GetPages() == nil {
		return m
	}
	named := &brokerv1.PullPages{First: r.GetPages().GetFirst()}
	if flip != 0 {
		named.Pages = slices.Clone(r.GetPages().GetPages())
		named.Pages[0] ^= flip
	}
	return &brokerv1.PullResponse{Kind: &brokerv1.PullResponse_Pages{Pages: named}}
}

// changed is m with other bytes, when it is a part of a page.
func changed(m any, f func([]byte) []byte) any {
	if p, ok := m.(*part); ok {
		return &part{mem.SliceBuffer(f(bytes.Clone(p.buf.ReadOnlyData())))}
	}
	return m
}

// faultyPages is how a raw lane sends its pages, with the point mover/wire: a page is its message. It is asked before the page
// is read, so that a page that is held here holds up no end.
func faultyPages(send func(place uint32, change func([]byte) []byte) error) func(place uint32) error {
	var late []uint32 // goes out after the next
	return func(place uint32) error {
		var change func([]byte) []byte
		var again []uint32
		switch fault.At(fault.MoverWire) {
		case fault.Drop:
			return nil
		case fault.Duplicate:
			again = []uint32{place}
		case fault.Reorder:
			if late == nil {
				late = []uint32{place}
				return nil
			}
		case fault.Truncate:
			change = func(b []byte) []byte { return b[:max(1, len(b)/2)] }
		case fault.Corrupt:
			change = func(b []byte) []byte {
				b = bytes.Clone(b)
				b[len(b)-1-fault.N(fault.MoverWire)%len(b)] ^= 0x10
				return b
			}
		}
		err := send(place, change)
		for _, next := range append(late, again...) {
			if err == nil {
				err = send(next, nil)
			}
		}
		late = nil
		return err
	}
}
