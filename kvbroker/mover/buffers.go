package mover

import (
	"encoding/binary"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/mem"
)

// buffers are send buffers that gRPC gives back by Put. Those it never gives back (a lost connection keeps some) are
// replaced: a buffer is a copy, so nothing waits for it.
type buffers struct {
	free sync.Pool
	out  atomic.Int64
}

var sendBuffers buffers

// SendBuffersOut is the number of send buffers that the transport has not given back.
func SendBuffersOut() int64 { return sendBuffers.out.Load() }

// Get implements mem.BufferPool.
func (p *buffers) Get(n int) *[]byte {
	p.out.Add(1)
	if b, ok := p.free.Get().(*[]byte); ok && cap(*b) >= n {
		*b = (*b)[:n]
		return b
	}
	b := make([]byte, n, partHeader+maxPart)
	return &b
}

// Put implements mem.BufferPool.
func (p *buffers) Put(b *[]byte) {
	p.out.Add(-1)
	p.free.Put(b)
}

// newPart makes the message of n bytes at off of a page; fill writes the bytes. On error nothing is kept.
func newPart(place, off, n uint32, fill func(dst []byte) error) (*part, error) {
	b := sendBuffers.Get(partHeader + int(n))
	(*b)[0] = kindPart
	binary.LittleEndian.PutUint32((*b)[1:], place)
	binary.LittleEndian.PutUint32((*b)[5:], off)
	if err := fill((*b)[partHeader:]); err != nil {
		sendBuffers.Put(b)
		return nil, err
	}
	if mem.IsBelowBufferPoolingThreshold(cap(*b)) { // mem.NewBuffer would not give it back
		sendBuffers.out.Add(-1)
	}
	return &part{mem.NewBuffer(b, &sendBuffers)}, nil
}
