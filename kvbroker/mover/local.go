package mover

import (
	"context"
	"errors"
	"io"
	"time"

	"leasehold.dev/kvbroker/transfer"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
)

// Local is an attached Pull inside one broker: pages stay where they are.
type Local struct {
	ctx  context.Context
	stop context.CancelFunc
	src  Source
}

// OpenLocal makes a Pull from a source of the same broker. ctx bounds the whole Pull.
func OpenLocal(ctx context.Context, src Source) *Local {
	ctx, stop := context.WithCancel(ctx)
	return &Local{ctx, stop, faultySource(src, 0)}
}

// Close ends the Pull; before its Completion that is a cancel.
func (l *Local) Close() { l.stop() }

// End has nothing to wait for: both sides are one broker, which looks at the pages when they are its own.
func (l *Local) End() error { return nil }

// Receive waits for every page to seal and returns the Completion. Nothing is written to dst, and no byte is counted.
func (l *Local) Receive(Destination, *transfer.Receiver) (*brokerv1.Completion, Moved, error) {
	defer l.stop()
	var m Moved
	var first time.Time
	for {
		_, err := l.src.Next(l.ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, m, err
		}
		if m.Pages++; first.IsZero() {
			first = time.Now()
		}
	}
	if m.Pages > 0 {
		m.Took = time.Since(first)
	}
	c, err := l.src.Complete(m.Pages, 0)
	return c, m, err
}
