package worker

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"leasehold.dev/gpu/layout"
	"leasehold.dev/gpu/pool"
	"leasehold.dev/gpu/tinymodel"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/proof"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// handle is an attachment to a pool that the test owns: a broker without its rpcs.
type handle struct {
	owner   *pool.Pool
	mapping *pool.Mapping
	done    chan struct{}
	closed  chan struct{}
}

func (h *handle) Mapping() *pool.Mapping { return h.mapping }
func (h *handle) Done() <-chan struct{}  { return h.done }
func (h *handle) Close() error {
	close(h.closed)
	return errors.Join(h.mapping.Close(), h.owner.Close())
}

// rig is a host that attaches to whatever the test offers.
type rig struct {
	*Host[*handle]
	key ed25519.PrivateKey

	mu       sync.Mutex
	facts    Facts
	state    PoolState
	refusing error
	asked    Facts // what the host said that it needs
	handles  []*handle
	attached chan *handle
}

const pages = 8

func newRig(t *testing.T, change func(*Config, *rig)) *rig {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	keyFile := filepath.Join(t.TempDir(), "admission.pub")
	if err := os.WriteFile(keyFile, []byte(base64.StdEncoding.EncodeToString(public)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := Config{
		Model: tinymodel.Write(t, tinymodel.Options{Context: 2048}), Backend: layout.Ref, Threads: 1, BrokerDir: "unused",
		AdmissionKey: keyFile, Promise: pages * 64, Chunk: 64, Sequences: 4, Queue: 8, QueueTokens: 1 << 16,
	}
	g := &rig{key: private, state: PoolState{Pages: pages, Free: pages}, attached: make(chan *handle, 16)}
	if change != nil {
		change(&c, g)
	}
	g.Host, err = Open(c, Own{ID: "w0"}, Dial[*handle]{
		Attach: g.attach,
		Facts:  func(*handle) Facts { g.mu.Lock(); defer g.mu.Unlock(); return g.facts },
		Pool:   func(*handle) PoolState { g.mu.Lock(); defer g.mu.Unlock(); return g.state },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	hash := g.engine.Layout().Hash()
	g.facts = Facts{
		Broker: "b0", Instance: []byte("instance"), LayoutHash: hash[:], ModelRevision: g.model.Revision[:],
		TokenizerRevision: g.model.TokenizerRevision[:], NumericsClass: g.engine.NumericsClass(), PoolPages: pages,
		PageBytes: g.engine.Layout().PageBytes(),
	}
	return g
}

func (g *rig) attach(_ context.Context, own Facts) (*handle, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = own
	if g.refusing != nil {
		return nil, g.refusing
	}
	owner, err := pool.New(pages, g.engine.Layout().PageBytes())
	if err != nil {
		return nil, err
	}
	mem, tags := owner.Files()
	m, err := pool.Map(mem, tags, pages, owner.PageBytes())
	if err != nil {
		return nil, err
	}
	h := &handle{owner: owner, mapping: m, done: make(chan struct{}), closed: make(chan struct{})}
	g.handles = append(g.handles, h)
	g.attached <- h
	return h, nil
}

// set changes what the broker says.
func (g *rig) set(f func(*rig)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f(g)
}

// start runs the host until the test ends.
func (g *rig) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); g.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
}

// until waits for a status that f accepts.
func (g *rig) until(t *testing.T, f func(*meshv1.WorkerStatus) bool) *meshv1.WorkerStatus {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var last *meshv1.WorkerStatus
	enough := errors.New("enough")
	err := g.Watch(ctx, nil, g.Status, func(s *meshv1.WorkerStatus) error {
		if last = s; f(s) {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		t.Fatalf("no such status: %v; the last was %v", err, last)
	}
	return last
}

func (g *rig) ticket(t *testing.T, ids []int32, change func(*meshv1.Admission)) *meshv1.SignedAdmission {
	t.Helper()
	a := &meshv1.Admission{
		Id: proof.NewID(), Nonce: proof.NewID(), Tenant: "acme", Model: "tiny", ModelRevision: g.model.Revision[:],
		PromptTokens: uint32(len(ids)), MaxNewTokens: 4, Prefill: "w0", Decode: "w0", PrefillBroker: "b0", DecodeBroker: "b0",
		Mover: meshv1.Mover_MOVER_LOCAL, DeadlineUnixMs: time.Now().Add(time.Minute).UnixMilli(),
	}
	if change != nil {
		change(a)
	}
	a.PromptDigest = proof.PromptDigest(a.Nonce, a.Tenant, a.ModelRevision, ids)
	s, err := proof.Sign(g.key, a)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
