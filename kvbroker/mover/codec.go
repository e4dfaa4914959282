package mover

import (
	"encoding/binary"
	"errors"
	"io"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"leasehold.dev/protos/errs"
)

// Subtype is the content subtype of PeerService.Pull. Every message is one kind byte and a payload.
const Subtype = "leasehold-raw"

const (
	kindProto = 0 // a protobuf message
	kindPart  = 1 // u32 place, u32 offset, both little endian, then bytes of a page

	partHeader = 1 + 4 + 4
	// maxPart bounds the page bytes of one message: few system calls, and still under gRPC's default message limit.
	maxPart = 1 << 20
	// maxControl bounds a protobuf message: a Completion of 2^16 pages fits.
	maxControl = 2 << 20
)

func init() { encoding.RegisterCodecV2(codec{}) }

type codec struct{}

func (codec) Name() string { return Subtype }

// part is a page part to send: header and bytes in one buffer.
type part struct{ buf mem.Buffer }

// incoming is where the next message goes: a protobuf message to msg, a part to what place gives.
type incoming struct {
	msg proto.Message
	// place returns the memory for n bytes at off of a page, or why they must not be written. Nil refuses parts.
	place func(page, off, n uint32) ([]byte, error)
	part  bool  // out: it was a part
	bytes int   // out: its bytes
	err   error // out: what Unmarshal found wrong; gRPC passes on only its text
}

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	switch v := v.(type) {
	case *part:
		return mem.BufferSlice{v.buf}, nil
	case proto.Message:
		b, err := proto.MarshalOptions{}.MarshalAppend([]byte{kindProto}, v)
		if err != nil {
			return nil, err
		}
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil
	}
	return nil, errs.New(errs.Internal, "%s: cannot send a %T", Subtype, v)
}

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	in, ok := v.(*incoming)
	if !ok {
		m, ok := v.(proto.Message)
		if !ok {
			return errs.New(errs.Internal, "%s: cannot receive into a %T", Subtype, v)
		}
		in = &incoming{msg: m}
	}
	r := data.Reader()
	defer func() { _ = r.Close() }()
	in.err = in.read(r, data.Len())
	return in.err
}

// receiver is either side of a gRPC stream.
type receiver interface{ RecvMsg(any) error }

// receive takes the next message. The error is io.EOF when the stream ended with status OK, else it has a kind.
func receive(from receiver, in *incoming) error {
	err := from.RecvMsg(in)
	switch {
	case in.err != nil:
		return in.err
	case errors.Is(err, io.EOF):
		return io.EOF
	}
	return errs.FromStatus(err)
}

func (in *incoming) read(r io.Reader, size int) error {
	var h [partHeader]byte
	if _, err := io.ReadFull(r, h[:1]); err != nil {
		return errs.New(errs.Corrupt, "pull: empty message")
	}
	switch h[0] {
	case kindProto:
		in.part = false
		if size > maxControl {
			return errs.New(errs.Corrupt, "pull: control message of %d bytes, at most %d", size, maxControl)
		}
		b := make([]byte, size-1)
		if _, err := io.ReadFull(r, b); err != nil {
			return errs.New(errs.Corrupt, "pull: %w", err)
		}
		if err := proto.Unmarshal(b, in.msg); err != nil {
			return errs.New(errs.Corrupt, "pull: %w", err)
		}
		return nil
	case kindPart:
		if in.place == nil {
			return errs.New(errs.Corrupt, "pull: a page part where none belongs")
		}
		if _, err := io.ReadFull(r, h[1:]); err != nil {
			return errs.New(errs.Corrupt, "pull: page part of %d bytes, its header has %d", size, partHeader)
		}
		in.part, in.bytes = true, size-partHeader
		dst, err := in.place(binary.LittleEndian.Uint32(h[1:]), binary.LittleEndian.Uint32(h[5:]), uint32(in.bytes))
		if err != nil {
			return err
		}
		if _, err := io.ReadFull(r, dst); err != nil {
			return errs.New(errs.Corrupt, "pull: page part: %w", err)
		}
		return nil
	}
	return errs.New(errs.Corrupt, "pull: message of kind %d", h[0])
}
