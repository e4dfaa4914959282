package server

import (
	"bytes"
	"context"
	"crypto/sha256"

	"google.golang.org/protobuf/proto"

	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	"leasehold.dev/protos/proof"
)

// call is one Reserve by request id. It is kept while its lease lives, so that a retry gets the same answer; a failure
// has reserved nothing and is not kept.
type call struct {
	h    *handle
	id   string
	sum  [sha256.Size]byte // of the request
	done chan struct{}
	resp *brokerv1.ReserveResponse // after done
	err  error
}

// forget drops the call. Callers hold the Broker's mu.
func (c *call) forget() {
	if c.h.calls[c.id] == c {
		delete(c.h.calls, c.id)
	}
}

// once runs reserve for the first call with a request id, and gives its answer to all others. A request without an
// admission only asks what became of an earlier one.
func (b *Broker) once(ctx context.Context, h *handle, req *brokerv1.ReserveRequest,
	reserve func(*call) (*brokerv1.ReserveResponse, error)) (*brokerv1.ReserveResponse, error) {
	if len(req.RequestId) != proof.IDSize {
		return nil, errs.New(errs.Invalid, "request id of %d bytes, want %d", len(req.RequestId), proof.IDSize)
	}
	wire, err := proto.MarshalOptions{Deterministic: true}.Marshal(req)
	if err != nil {
		return nil, errs.Mark(err, errs.Invalid)
	}
	mine := &call{h: h, id: string(req.RequestId), sum: sha256.Sum256(wire), done: make(chan struct{})}
	b.mu.Lock()
	first := h.calls[mine.id]
	if first == nil && req.Admission != nil {
		h.calls[mine.id] = mine
	}
	b.mu.Unlock()
	switch {
	case first == nil && req.Admission == nil:
		return nil, errs.New(errs.NotFound, "no reservation has this request id")
	case first != nil && req.Admission != nil && !bytes.Equal(first.sum[:], mine.sum[:]):
		return nil, errs.New(errs.Invalid, "the request id belongs to another request")
	case first != nil:
		select {
		case <-first.done:
			return first.resp, first.err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	mine.resp, mine.err = reserve(mine)
	if mine.err != nil {
		b.mu.Lock()
		mine.forget()
		b.mu.Unlock()
	}
	close(mine.done)
	return mine.resp, mine.err
}
