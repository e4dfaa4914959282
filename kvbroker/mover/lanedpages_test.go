package mover

import (
	"context"
	"sync"
	"sync/atomic"
)

// lanedPages are pages that several lanes read and write.
type lanedPages struct {
	*pages
	hold chan struct{} // Next waits for its end; nil: does not

	mu   sync.Mutex
	over atomic.Bool  // the Pull's handler has ended
	late atomic.Int64 // reads after that
}

func newLanedPeer(n, size int) *lanedPeer {
	return &lanedPeer{src: &lanedPages{pages: newPages(n, size)}, ended: make(chan error, 1)}
}

func (p *lanedPages) Next(ctx context.Context) (uint32, error) {
	if p.hold != nil {
		select {
		case <-p.hold:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return p.pages.Next(ctx)
}

func (p *lanedPages) Read(place, off uint32, dst []byte) error {
	if p.over.Load() {
		p.late.Add(1)
	}
	return p.pages.Read(place, off, dst)
}

func (p *lanedPages) Landed(place uint32) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pages.Landed(place)
}
