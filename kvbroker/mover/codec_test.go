package mover

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
)

func partMessage(place, off uint32, data []byte) []byte {
	b := []byte{kindPart}
	b = binary.LittleEndian.AppendUint32(b, place)
	b = binary.LittleEndian.AppendUint32(b, off)
	return append(b, data...)
}

// split cuts b into buffers of n bytes, as frames do.
func split(b []byte, n int) (out mem.BufferSlice) {
	for len(b) > n {
		out, b = append(out, mem.SliceBuffer(b[:n])), b[n:]
	}
	return append(out, mem.SliceBuffer(b))
}

func TestPartIsCopiedToItsPlaceHoweverItIsFramed(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 64)
	for _, frame := range []int{1, 2, 7, 8, 9, 10, 100, 1 << 20} {
		page := make([]byte, 4096)
		in := &incoming{msg: &brokerv1.PullResponse{}, place: func(place, off, n uint32) ([]byte, error) {
			if place != 3 || off != 1000 || n != 1024 {
				t.Errorf("place(%d, %d, %d), want (3, 1000, 1024)", place, off, n)
			}
			return page[off : off+n], nil
		}}
		if err := (codec{}).Unmarshal(split(partMessage(3, 1000, data), frame), in); err != nil || !in.part || in.bytes != 1024 {
			t.Fatalf("frames of %d: Unmarshal = %v, part %v of %d bytes", frame, err, in.part, in.bytes)
		}
		if !bytes.Equal(page[1000:2024], data) || page[999] != 0 || page[2024] != 0 {
			t.Errorf("frames of %d: the bytes are not where they belong", frame)
		}
	}
}

func TestProtobufMessagesPass(t *testing.T) {
	want := &brokerv1.PullResponse{Kind: &brokerv1.PullResponse_Sent{Sent: &brokerv1.PullSent{Pages: 7}}}
	wire, err := (codec{}).Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	b := wire.Materialize()
	if b[0] != kindProto {
		t.Errorf("kind %d, want %d", b[0], kindProto)
	}
	direct, staged := &brokerv1.PullResponse{}, &incoming{msg: &brokerv1.PullResponse{}, part: true}
	for _, to := range []any{direct, staged} {
		if err := (codec{}).Unmarshal(split(b, 2), to); err != nil {
			t.Fatal(err)
		}
	}
	if !proto.Equal(direct, want) || !proto.Equal(staged.msg, want) || staged.part {
		t.Errorf("got %v and %v, want %v", direct, staged.msg, want)
	}
}

func TestUnmarshalRefuses(t *testing.T) {
	refuse := func(uint32, uint32, uint32) ([]byte, error) { return nil, errs.New(errs.Corrupt, "not this one") }
	for _, tt := range []struct {
		name  string
		bytes []byte
		place func(page, off, n uint32) ([]byte, error)
	}{
		{"nothing", nil, nil},
		{"an unknown kind", []byte{2, 0, 0}, nil},
		{"a part where none belongs", partMessage(0, 0, []byte{1}), nil},
		{"a part without its header", []byte{kindPart, 1, 2, 3}, refuse},
		{"a part that its receiver refuses", partMessage(0, 0, []byte{1}), refuse},
		{"a broken protobuf", []byte{kindProto, 0xff, 0xff}, nil},
		{"an endless control message", append([]byte{kindProto}, make([]byte, maxControl)...), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := &incoming{msg: &brokerv1.PullResponse{}, place: tt.place}
			if err := (codec{}).Unmarshal(split(tt.bytes, 100), in); errs.KindOf(err) != errs.Corrupt || !errors.Is(in.err, err) {
				t.Errorf("Unmarshal = %v, want corrupt, and kept", err)
			}
		})
	}
	if err := (codec{}).Unmarshal(nil, 5); err == nil {
		t.Error("Unmarshal into an int gives no error")
	}
	if _, err := (codec{}).Marshal(5); err == nil {
		t.Error("Marshal of an int gives no error")
	}
}

func TestSendBuffersComeBack(t *testing.T) {
	before := SendBuffersOut()
	for _, n := range []uint32{1, 100, maxPart} {
		p, err := newPart(1, 2, n, func(dst []byte) error { dst[0] = 9; return nil })
		if err != nil {
			t.Fatal(err)
		}
		if SendBuffersOut() != before+1 {
			t.Errorf("%d buffers out, want %d", SendBuffersOut(), before+1)
		}
		wire, err := (codec{}).Marshal(p)
		if err != nil || wire.Len() != partHeader+int(n) {
			t.Errorf("part of %d bytes on the wire, %v, want %d", wire.Len(), err, partHeader+n)
		}
		wire.Free()
	}
	if _, err := newPart(0, 0, 10, func([]byte) error { return errs.New(errs.Stale, "lost") }); errs.KindOf(err) != errs.Stale {
		t.Errorf("newPart = %v, want the source's error", err)
	}
	if SendBuffersOut() != before {
		t.Errorf("%d buffers out, want %d", SendBuffersOut(), before)
	}
}

func FuzzUnmarshal(f *testing.F) {
	f.Add([]byte{}, uint8(3))
	f.Add([]byte{kindProto}, uint8(1))
	f.Add(partMessage(1, 64, []byte("some bytes of a page")), uint8(4))
	f.Add(partMessage(1<<31, 1<<31, nil), uint8(200))
	f.Fuzz(func(t *testing.T, b []byte, frame uint8) {
		page := make([]byte, 256)
		in := &incoming{msg: &brokerv1.PullResponse{}, place: func(place, off, n uint32) ([]byte, error) {
			if place != 0 || uint64(off)+uint64(n) > uint64(len(page)) {
				return nil, errs.New(errs.Corrupt, "outside")
			}
			return page[off : off+n], nil
		}}
		err := (codec{}).Unmarshal(split(b, int(frame)+1), in)
		if err != nil && errs.KindOf(err) != errs.Corrupt {
			t.Errorf("Unmarshal = %v, want corrupt or nothing", err)
		}
		if err == nil && in.part && in.bytes != len(b)-partHeader {
			t.Errorf("part of %d bytes in a message of %d", in.bytes, len(b))
		}
	})
}
