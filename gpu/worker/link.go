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
	Host, Fabric      string
	Movers            []string
}

// PoolState is the pool as the broker last told it; see [Facts] for its shape.
type PoolState struct {
	Pages, Free uint32
	Draining    bool
	GuardsOff   bool
}

// Dial is how a worker reaches its broker.
type Dial[B Broker] struct {
	// Attach asks for an attachment to a broker that is as own says, as far as its fields are set.
	Attach func(ctx context.Context, own Facts) (B, error)
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

// own is what this worker needs of a broker.
func (h *Host[B]) own() Facts {
	hash := h.engine.Layout().Hash()
	return Facts{
		LayoutHash: hash[:], ModelRevision: h.model.Revision[:], TokenizerRevision: h.model.TokenizerRevision[:],
		NumericsClass: h.engine.NumericsClass(), PageBytes: h.engine.Layout().PageBytes(),
	}
}

// agree compares what must be equal before a page may be touched: the broker was asked to, and this is the worker's own
// look. The error has both values.
func (h *Host[B]) agree(f Facts) error {
	own := h.own()
	for _, c := range []struct {
		what      string
		own, told []byte
	}{
		{"layout hash", own.LayoutHash, f.LayoutHash},
		{"model revision", own.ModelRevision, f.ModelRevision},
		{"tokenizer revision", own.TokenizerRevision, f.TokenizerRevision},
	} {
		if !bytes.Equal(c.own, c.told) {
			return errs.New(errs.Invalid, "%s is %x, broker %s has %x", c.what, c.own, f.Broker, c.told)
		}
	}
	if own.NumericsClass != f.NumericsClass {
		return errs.New(errs.Invalid, "numerics class is %s, broker %s has %s", own.NumericsClass, f.Broker, f.NumericsClass)
	}
	if own.PageBytes != f.PageBytes {
		return errs.New(errs.Invalid, "pages have %d bytes, those of broker %s %d", own.PageBytes, f.Broker, f.PageBytes)
	}
	return nil
}

// derive is the most tokens of one request that fit the pool and the model.
func (h *Host[B]) derive(f Facts) uint32 {
	return uint32(min(uint64(f.PoolPages)*layout.PageTokens, uint64(h.model.Config.ContextLength)))
}
