package worker

import (
	"bytes"
	"context"
	"sync"
	"time"

	"leasehold.dev/gpu/layout"
	"leasehold.dev/gpu/pool"
	"leasehold.dev/gpu/runner"
	"leasehold.dev/protos/errs"
)

// Broker is what a host needs of an attach handle.
type Broker interface {
	Mapping() *pool.Mapping
	Done() <-chan struct{} // closed when the broker is gone
	Close() error
}

// Facts is what a broker said of itself at the attach. Its fields are those of the broker client's Info, so that one
// converts to the other.
type Facts struct {
	Broker            string
	Instance          []byte
	Epoch             uint64
	LayoutHash        []byte
	ModelRevision     []byte
	TokenizerRevision []byte
	NumericsClass     string
	PoolPages         uint32
	PageBytes         uint64
}

// PoolState is the pool as the broker last told it; see [Facts] for its shape.
type PoolState struct {
	Pages, Free uint32
	Draining    bool
}

// Dial is how a worker reaches its broker.
type Dial[B Broker] struct {
	Attach func(context.Context) (B, error)
	Facts  func(B) Facts
	Pool   func(B) PoolState
}

// Link is one attachment. It stays as it is when the broker goes; only its tasks end.
type Link[B Broker] struct {
	Broker B
	Facts  Facts
	Limit  uint32 // derived: most tokens of one request, prompt and new

	runner *runner.Runner
	pool   *runner.Pool
	held   sync.WaitGroup // by requests and their leases; the broker is closed after them
}

// Release gives back what [Host.Link] gave. The link must not be used after it.
func (l *Link[B]) Release() { l.held.Done() }

// Admit takes a place in the engine's queue for a task that will run on this link's pages.
func (l *Link[B]) Admit(tenant string, tokens uint32, deadline time.Time) (*runner.Task, error) {
	return l.runner.Admit(l.pool, runner.Request{Tenant: tenant, Tokens: tokens, Deadline: deadline})
}

// Gone is closed when the broker is gone: every rpc on it fails, and every task of this link has ended or is ending.
func (l *Link[B]) Gone() <-chan struct{} { return l.Broker.Done() }

// agree compares what must be equal before a page may be touched. The error has both values.
func (h *Host[B]) agree(f Facts) error {
	hash := h.engine.Layout().Hash()
	for _, c := range []struct {
		what      string
		own, told []byte
	}{
		{"layout hash", hash[:], f.LayoutHash},
		{"model revision", h.model.Revision[:], f.ModelRevision},
		{"tokenizer revision", h.model.TokenizerRevision[:], f.TokenizerRevision},
	} {
		if !bytes.Equal(c.own, c.told) {
			return errs.New(errs.Invalid, "%s is %x, broker %s has %x", c.what, c.own, f.Broker, c.told)
		}
	}
	if own := h.engine.NumericsClass(); own != f.NumericsClass {
		return errs.New(errs.Invalid, "numerics class is %s, broker %s has %s", own, f.Broker, f.NumericsClass)
	}
	if own := h.engine.Layout().PageBytes(); own != f.PageBytes {
		return errs.New(errs.Invalid, "pages have %d bytes, those of broker %s %d", own, f.Broker, f.PageBytes)
	}
	return nil
}

// derive is the most tokens of one request that fit the pool and the model.
func (h *Host[B]) derive(f Facts) uint32 {
	return uint32(min(uint64(f.PoolPages)*layout.PageTokens, uint64(h.model.Config.ContextLength)))
}
