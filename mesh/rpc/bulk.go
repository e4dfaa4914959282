package rpc

import (
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/experimental"
)

// Windows and buffers for streams of messages of about 1 MiB. Windows are fixed: an estimate of the path costs pings and
// starts small. Smaller buffers cost more wake-ups a byte at either end, larger ones gain little. Measured there with half of
// these buffers: 1.35x the bytes a second of the defaults.
const (
	bulkStream = 16 << 20
	bulkConn   = 32 << 20
	bulkBuffer = 512 << 10
)

// frame is the most bytes of a DATA frame that grpc-go sends.
const frame = 16 << 10

// frames is a pool of buffers for incoming frames. gRPC's own clears each before it is used again, which is a seventh of a
// receiver's time; a frame is read whole into its buffer, or not passed on, so nobody sees what was there before.
type frames struct{ free sync.Pool }

var incoming frames

// Get implements mem.BufferPool.
func (p *frames) Get(n int) *[]byte {
	if n > frame || n <= frame/4 { // a small one would hold a frame's memory
		b := make([]byte, n)
		return &b
	}
	if b, ok := p.free.Get().(*[]byte); ok {
		*b = (*b)[:n]
		return b
	}
	b := make([]byte, n, frame)
	return &b
}

// Put implements mem.BufferPool.
func (p *frames) Put(b *[]byte) {
	if cap(*b) == frame {
		p.free.Put(b)
	}
}

// BulkServer are the further options of a server that sends or receives pages.
func BulkServer() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.StaticStreamWindowSize(bulkStream), grpc.StaticConnWindowSize(bulkConn),
		grpc.WriteBufferSize(bulkBuffer), grpc.ReadBufferSize(bulkBuffer), experimental.BufferPool(&incoming),
	}
}

// BulkDial are the further options of a connection that carries pages.
func BulkDial() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithStaticStreamWindowSize(bulkStream), grpc.WithStaticConnWindowSize(bulkConn),
		grpc.WithWriteBufferSize(bulkBuffer), grpc.WithReadBufferSize(bulkBuffer), experimental.WithBufferPool(&incoming),
	}
}
