// Package rogue stands between two real brokers and lies: it forwards what they say to each other and changes the answers
// of a Pull as a test asks. It holds the source broker's name in its certificate and learns the transfer secret, so its
// lies carry a valid MAC where the test wants that: what remains to catch them is the receiver's own expectation and the
// digests of what has arrived.
package rogue

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"leasehold.dev/mesh/identity"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
)

// Message is one answer of a Pull: a part of a page, or a control message.
type Message struct {
	Part    *Part
	Control *brokerv1.PullResponse
}

// Part is a piece of a page.
type Part struct {
	Place, Offset uint32
	Data          []byte
}

// Lie changes one answer: what it returns goes to the receiver in its place. It is called for each answer of one Pull in
// order, by one goroutine. io.EOF ends the stream with OK.
type Lie func(Message) ([]Message, error)

// Truth forwards everything.
func Truth(m Message) ([]Message, error) { return []Message{m}, nil }

// Proxy is one rogue between a source broker and those that pull from it.
type Proxy struct {
	Addr string // what the source broker must advertise

	server *grpc.Server
	done   chan error
	mu     sync.Mutex
	conn   *grpc.ClientConn
	lie    func(*brokerv1.PullOpen) Lie
}

// Listen serves with the identity in dir, which names the source broker. Connect says where that broker really is.
func Listen(dir string) (*Proxy, error) {
	id, err := identity.Load(dir)
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{Addr: ln.Addr().String(), done: make(chan error, 1)}
	p.Lie(nil)
	p.server = grpc.NewServer(grpc.Creds(id.ServerCreds()), grpc.ForceServerCodecV2(raw{}), grpc.UnknownServiceHandler(p.forward), grpc.MaxRecvMsgSize(8<<20))
	go func() { p.done <- p.server.Serve(ln) }()
	return p, nil
}

// Connect dials the real source broker at addr, with the identity in dir, which names the receiver.
func (p *Proxy) Connect(addr, dir, broker string) error {
	id, err := identity.Load(dir)
	if err != nil {
		return err
	}
	cc, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(id.ClientCreds("kvbroker", broker)))
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conn = cc
	return nil
}

// Lie sets what the next Pulls get; nil is the truth.
func (p *Proxy) Lie(f func(*brokerv1.PullOpen) Lie) {
	if f == nil {
		f = func(*brokerv1.PullOpen) Lie { return Truth }
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lie = f
}

// Close ends all streams.
func (p *Proxy) Close() error {
	p.server.Stop()
	if p.conn != nil {
		p.conn.Close()
	}
	return <-p.done
}

func (p *Proxy) forward(_ any, down grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(down)
	p.mu.Lock()
	conn, lie := p.conn, p.lie
	p.mu.Unlock()
	if conn == nil {
		return errors.New("rogue: not connected yet")
	}
	ctx, cancel := context.WithCancel(down.Context())
	defer cancel()
	opts := []grpc.CallOption{grpc.ForceCodecV2(raw{}), grpc.MaxCallRecvMsgSize(8 << 20)}
	if ct := metadata.ValueFromIncomingContext(ctx, "content-type"); len(ct) == 1 {
		opts = append(opts, grpc.CallContentSubtype(strings.TrimPrefix(strings.TrimPrefix(ct[0], "application/grpc"), "+")))
	}
	up, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method, opts...)
	if err != nil {
		return err
	}
	opened := make(chan *brokerv1.PullOpen, 1)
	go requests(down, up, opened)
	if method != brokerv1.PeerService_Pull_FullMethodName {
		return answers(down, up, nil)
	}
	select {
	case open := <-opened:
		return answers(down, up, lie(open))
	case <-ctx.Done():
		return ctx.Err()
	}
}

// requests carries the receiver's words up, and shows the first.
func requests(down grpc.ServerStream, up grpc.ClientStream, opened chan<- *brokerv1.PullOpen) {
	for {
		var b []byte
		if err := down.RecvMsg(&b); err != nil {
			_ = up.CloseSend() // EOF, or the receiver is gone and the context says so to the source
			return
		}
		req := &brokerv1.PullRequest{}
		if len(b) > 1 && b[0] == 0 && proto.Unmarshal(b[1:], req) == nil && req.GetOpen() != nil {
			select {
			case opened <- req.GetOpen():
			default:
			}
		}
		if up.SendMsg(&b) != nil {
			return // the answer's side has the error
		}
	}
}

func answers(down grpc.ServerStream, up grpc.ClientStream, lie Lie) error {
	for {
		var b []byte
		err := up.RecvMsg(&b)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return status.Convert(err).Err()
		}
		if lie == nil {
			if err := down.SendMsg(&b); err != nil {
				return err
			}
			continue
		}
		m, err := decode(b)
		if err != nil {
			return err
		}
		out, err := lie(m)
		for _, m := range out {
			b, err := m.encode()
			if err != nil {
				return err
			}
			if err := down.SendMsg(&b); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func decode(b []byte) (Message, error) {
	switch {
	case len(b) > 0 && b[0] == 0:
		r := &brokerv1.PullResponse{}
		return Message{Control: r}, proto.Unmarshal(b[1:], r)
	case len(b) > 9 && b[0] == 1:
		return Message{Part: &Part{binary.LittleEndian.Uint32(b[1:]), binary.LittleEndian.Uint32(b[5:]), b[9:]}}, nil
	}
	return Message{}, fmt.Errorf("rogue: a message of %d bytes that is neither control nor part", len(b))
}

func (m Message) encode() ([]byte, error) {
	if m.Part == nil {
		return proto.MarshalOptions{}.MarshalAppend([]byte{0}, m.Control)
	}
	b := binary.LittleEndian.AppendUint32([]byte{1}, m.Part.Place)
	b = binary.LittleEndian.AppendUint32(b, m.Part.Offset)
	return append(b, m.Part.Data...), nil
}

// raw hands messages through as bytes.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}
