package prefill

import (
	"sync"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/gpu/layout"
	"leasehold.dev/gpu/runner"
	"leasehold.dev/kvbroker/client"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/pagesum"
)

// pages counts what a sequence's steps append. It is the sequence's handler: Step runs on the engine's loop, the rest on
// the request's goroutine.
type pages struct {
	sum  func(place, rows uint32) (pagesum.Digest, error) // digests a page at rest; nil when the engine gives digests
	news chan struct{}                                    // one token: there may be something to take

	mu     sync.Mutex
	fed    []int32
	rows   uint32
	full   []client.Seal // not taken yet
	next   uint32        // place of the page that is being filled
	filled client.Seal   // that page so far
}

func newPages() *pages { return &pages{news: make(chan struct{}, 1)} }

// Step implements runner.Handler.
func (p *pages) Step(o runner.Outcome) (int32, bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fed = append(p.fed, o.Fed...)
	digests := o.Pages
	if p.sum != nil {
		var err error
		if digests, err = p.atRest(p.rows, o.Length); err != nil {
			return 0, false, err
		}
	}
	p.rows = o.Length
	for _, d := range digests {
		if err := p.count(d); err != nil {
			return 0, false, err
		}
	}
	select {
	case p.news <- struct{}{}:
	default:
	}
	return 0, false, nil
}

// count takes one page's digest. Pages come in order, and only a full one is followed by the next.
func (p *pages) count(d engine.PageDigest) error {
	if d.Place != p.next || d.Rows <= p.filled.Rows || d.Rows > layout.PageTokens || d.Digest.IsZero() {
		return errs.New(errs.Corrupt, "engine: digest %v of %d rows of page %d, while page %d has %d",
			d.Digest, d.Rows, d.Place, p.next, p.filled.Rows)
	}
	p.filled = client.Seal{Index: d.Place, Rows: d.Rows, Digest: d.Digest}
	if d.Rows == layout.PageTokens {
		p.full = append(p.full, p.filled)
		p.filled = client.Seal{}
		p.next++
	}
	return nil
}

// atRest digests what an engine without guards has written: rows [from, to).
func (p *pages) atRest(from, to uint32) (out []engine.PageDigest, err error) {
	for place := from / layout.PageTokens; place*layout.PageTokens < to; place++ {
		rows := min(to-place*layout.PageTokens, layout.PageTokens)
		d, err := p.sum(place, rows)
		if err != nil {
			return nil, err
		}
		out = append(out, engine.PageDigest{Place: place, Rows: rows, Digest: d})
	}
	return out, nil
}

// take returns the full pages before place end that nobody has taken, when they are at least so many.
func (p *pages) take(end uint32, least int) (out []client.Seal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.full) < least {
		return nil
	}
	for len(p.full) > 0 && p.full[0].Index < end {
		out = append(out, p.full[0])
		p.full = p.full[1:]
	}
	return out
}

// rest returns what take has left: the last page, partial or not. The sequence is done.
func (p *pages) rest() []client.Seal {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.filled.Rows == 0 {
		return p.full
	}
	return append(p.full, p.filled)
}

// counted is how many pages and rows were appended, and the ids that went in.
func (p *pages) counted() (n, rows uint32, fed []int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n = p.next; p.filled.Rows > 0 {
		n++
	}
	return n, p.rows, p.fed
}
