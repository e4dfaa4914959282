package server

import (
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/gpu/layout"
	"leasehold.dev/kvbroker/client"
	"leasehold.dev/kvbroker/lease"
	"leasehold.dev/mesh/rpc"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/proof"
)

func TestMain(m *testing.M) {
	if mode := os.Getenv(helperMode); mode != "" {
		if f := helpers[mode]; f != nil {
			os.Exit(f())
		}
		os.Exit(helper(mode))
	}
	goleak.VerifyTestMain(m)
}

var (
	small     = layout.Layout{Layers: 2, KVHeads: 1, HeadDim: 64, DType: layout.BF16, Order: layout.Plain}
	revision  = [32]byte{1, 2, 3}
	tokenizer = [32]byte{4, 5, 6}
	// routerKey is the same in the helper processes.
	routerKey = ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
)

// fleet is the brokers of a test, by name: it implements Peers.
type fleet struct {
	mu    sync.Mutex
	conns map[string]*grpc.ClientConn
}

func newFleet(t *testing.T) *fleet {
	f := &fleet{conns: map[string]*grpc.ClientConn{}}
	t.Cleanup(func() {
		for _, c := range f.conns {
			c.Close()
		}
	})
	return f
}

func (f *fleet) Call(name string, do func(grpc.ClientConnInterface) error) error {
	f.mu.Lock()
	c := f.conns[name]
	f.mu.Unlock()
	if c == nil {
		return errs.New(errs.Unavailable, "broker %q is not listed", name)
	}
	return do(c)
}

// laneOf names a further connection to a broker.
func laneOf(name string, lane int) string { return fmt.Sprintf("%s lane %d", name, lane) }

// More implements Peers.
func (f *fleet) More(name string, n int) []grpc.ClientConnInterface {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []grpc.ClientConnInterface
	for i := range n {
		if c := f.conns[laneOf(name, i+1)]; c != nil {
			out = append(out, c)
		}
	}
	return out
}

// list makes name be served by s, on loopback without TLS. It replaces an earlier one.
func (f *fleet) list(t *testing.T, name string, register func(grpc.ServiceRegistrar)) *grpc.Server {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(append(rpc.BulkServer(), grpc.ChainUnaryInterceptor(unaryErrors), grpc.ChainStreamInterceptor(streamErrors),
		grpc.WaitForHandlers(true))...)
	register(s)
	done := make(chan struct{})
	go func() { defer close(done); s.Serve(ln) }()
	t.Cleanup(func() { s.Stop(); <-done })
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range []string{name, laneOf(name, 1), laneOf(name, 2)} {
		c, err := grpc.NewClient("passthrough:///"+ln.Addr().String(), append(rpc.BulkDial(),
			grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry())...)
		if err != nil {
			t.Fatal(err)
		}
		if old := f.conns[name]; old != nil {
			old.Close()
		}
		f.conns[name] = c
	}
	return s
}

// node is one broker with what a test may look at.
type node struct {
	*Broker
	dir    string
	peers  *grpc.Server
	reader *metric.ManualReader
}

type option func(*Config)

func newNode(t *testing.T, f *fleet, name string, pages uint32, opts ...option) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "lh") // short: a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return startNode(t, f, name, pages, filepath.Join(dir, "run"), opts...)
}

func startNode(t *testing.T, f *fleet, name string, pages uint32, dir string, opts ...option) *node {
	t.Helper()
	n := &node{dir: dir, reader: metric.NewManualReader()}
	c := Config{Name: name, Dir: dir, Layout: small, ModelRevision: revision, TokenizerRevision: tokenizer, NumericsClass: "ref-1",
		Pages: pages, AdmissionKey: routerKey.Public().(ed25519.PublicKey), CheckShare: 1, Peers: f, Host: "this one",
		Meter: metric.NewMeterProvider(metric.WithReader(n.reader)).Meter("test")}
	for _, o := range opts {
		o(&c)
	}
	var err error
	if n.Broker, err = New(c); err != nil {
		t.Fatal(err)
	}
	n.peers = f.list(t, name, n.Register)
	t.Cleanup(n.stopAll)
	return n
}

func (n *node) stopAll() {
	n.peers.Stop()
	n.Close()
}

func (n *node) attach(t *testing.T, worker string) *client.Client {
	t.Helper()
	c, err := client.Attach(t.Context(), client.Config{Dir: n.dir, Worker: worker})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// eventually waits for a state that another goroutine or process brings about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(20 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

func (n *node) states() [lease.States]uint32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.table.Snapshot().States
}

// baseline waits until nothing is held: every page free, no lease, no Pull.
func (n *node) baseline(t *testing.T) {
	t.Helper()
	eventually(t, n.cfg.Name+" at baseline", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.table.Free() == n.cfg.Pages && len(n.held) == 0 && len(n.parked) == 0 && len(n.undrained) == 0 && len(n.dirty) == 0
	})
	for i := range n.cfg.Pages {
		if n.pool.LoadTag(i).Slot() != 0 || !isZero(n.pool.Page(i)) {
			t.Errorf("%s: page %d at baseline has tag %v, zero %v", n.cfg.Name, i, n.pool.LoadTag(i), isZero(n.pool.Page(i)))
		}
	}
}

// count is the sum of a counter's points that have the attribute.
func (n *node) count(t *testing.T, name, key, value string) int64 {
	t.Helper()
	var rm metricdata.ResourceMetrics
	if err := n.reader.Collect(t.Context(), &rm); err != nil {
		t.Fatal(err)
	}
	total := int64(0)
	for _, s := range rm.ScopeMetrics {
		for _, m := range s.Metrics {
			var points []metricdata.DataPoint[int64]
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				points = d.DataPoints
			case metricdata.Gauge[int64]:
				points = d.DataPoints
			}
			for _, p := range points {
				if v, ok := p.Attributes.Value(attributeKey(key)); m.Name == name && (key == "" || ok && v.String() == value) {
					total += p.Value
				}
			}
		}
	}
	return total
}

// request is one admission with its token ids.
type request struct {
	a   *meshv1.Admission
	s   *meshv1.SignedAdmission
	ids []int32
}

func newRequest(t *testing.T, n, maxNew uint32, m meshv1.Mover, change ...func(*meshv1.Admission)) *request {
	t.Helper()
	r := &request{ids: make([]int32, n)}
	for i := range r.ids {
		r.ids[i] = int32(i*7 + 3)
	}
	r.a = &meshv1.Admission{Id: proof.NewID(), Tenant: "t0", Model: "m", ModelRevision: revision[:], PromptTokens: n, MaxNewTokens: maxNew,
		Nonce: proof.NewID(), Decode: "d0", DecodeBroker: "b1", Mover: m, DeadlineUnixMs: time.Now().Add(time.Minute).UnixMilli()}
	if m != meshv1.Mover_MOVER_NONE {
		r.a.Prefill, r.a.PrefillBroker = "p0", "b0"
	}
	if m == meshv1.Mover_MOVER_LOCAL {
		r.a.PrefillBroker = "b1"
	}
	for _, f := range change {
		f(r.a)
	}
	if r.a.PromptDigest == nil {
		r.a.PromptDigest = proof.PromptDigest(r.a.Nonce, r.a.Tenant, r.a.ModelRevision, r.ids)
	}
	var err error
	if r.s, err = proof.Sign(routerKey, r.a); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *request) life() uint32  { return (r.a.PromptTokens + r.a.MaxNewTokens - 1 + 63) / 64 }
func (r *request) moved() uint32 { return proof.Pages(r.a.PromptTokens, 0) }
func (r *request) rows() uint32  { return r.a.PromptTokens - 1 }

func (r *request) decode(t *testing.T, c *client.Client) *client.Lease {
	t.Helper()
	l, err := c.Reserve(t.Context(), client.Reservation{Admission: r.s, Role: brokerv1.Role_ROLE_DESTINATION, TokenIDs: r.ids, Pages: r.life()})
	if err != nil {
		t.Fatalf("reserve destination: %v", err)
	}
	return l
}

func (r *request) prefill(t *testing.T, c *client.Client) *client.Lease {
	t.Helper()
	l, err := c.Reserve(t.Context(), client.Reservation{Admission: r.s, Role: brokerv1.Role_ROLE_SOURCE, TokenIDs: r.ids, Pages: r.moved()})
	if err != nil {
		t.Fatalf("reserve source: %v", err)
	}
	return l
}

// compute writes the KV of one page as if a model had, and returns its seal. Every row depends on all tokens up to it.
func compute(t *testing.T, c *client.Client, l *client.Lease, ids []int32, place, rows uint32) client.Seal {
	t.Helper()
	page := c.Mapping().Page(l.Pages[place])
	row := make([]byte, small.Shape().RowBytes())
	for i := range rows {
		at := place*64 + i
		for layer := range int(small.Layers) {
			for kv := range 2 {
				for j := 0; j < len(row); j += 8 {
					binary.LittleEndian.PutUint64(row[j:], uint64(at+1)<<40|uint64(ids[at])<<16|uint64(layer)<<12|uint64(kv)<<8|uint64(j))
				}
				small.SetRow(page, row, int(i), layer, kv, 0)
			}
		}
	}
	d, _, err := engine.PageSum(small, page, rows, testKeys)
	if err != nil {
		t.Fatal(err)
	}
	return client.Seal{Index: place, Rows: rows, Digest: d}
}

// fill computes and seals every page of a source but the last, and finishes with that.
func fill(t *testing.T, c *client.Client, l *client.Lease, r *request) client.Finish {
	t.Helper()
	for place := range r.moved() - 1 {
		if err := l.Seal(t.Context(), []client.Seal{compute(t, c, l, r.ids, place, 64)}); err != nil {
			t.Fatalf("seal page %d: %v", place, err)
		}
	}
	last := r.moved() - 1
	f, err := l.Finish(t.Context(), []client.Seal{compute(t, c, l, r.ids, last, r.rows()-last*64)}, r.rows())
	if err != nil {
		t.Fatalf("finish: %v", err)
	}
	return f
}

// bothLooks waits for both looks at the pages, as a decode worker does before its first token.
func bothLooks(t *testing.T, l *client.Lease) (*client.Owned, error) {
	t.Helper()
	o, err := l.AwaitOwned(t.Context())
	if err != nil {
		return nil, err
	}
	return o, l.AwaitSettled(t.Context())
}

func retire(t *testing.T, l *client.Lease, ok bool) {
	t.Helper()
	if err := l.Retire(context.Background(), ok, "test", nil); err != nil {
		t.Errorf("retire: %v", err)
	}
}

func wantKind(t *testing.T, what string, err error, want errs.Kind) {
	t.Helper()
	if err == nil || errs.KindOf(err) != want {
		t.Errorf("%s = %v (%v), want %v", what, err, kindName(err), want)
	}
}

func kindName(err error) string {
	if err == nil {
		return "no error"
	}
	return fmt.Sprint(errs.KindOf(err))
}

// within bounds a wait for what must come at once, not by a deadline of the request.
func within(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(10 * time.Second):
		t.Fatalf("not within 10 s: %s", what)
	}
}

// pair is a prefill broker b0 with worker p0, and a decode broker b1 with worker d0. With mover local, both are on b1.
type pair struct {
	fleet  *fleet
	b0, b1 *node
	p, d   *client.Client
	m0, m1 *moverProcess // with mover ucx
}

// helpers are what else the test binary can be as a process, by mode.
var helpers = map[string]func() int{}

func newPair(t *testing.T, m meshv1.Mover, opts ...option) *pair {
	t.Helper()
	f := newFleet(t)
	if m == ucx {
		opts = append(opts, func(c *Config) { c.Movers, c.Fabric = []meshv1.Mover{ucx}, "this one" })
	}
	k := &pair{fleet: f, b0: newNode(t, f, "b0", 8, opts...), b1: newNode(t, f, "b1", 12, opts...)}
	if m == ucx {
		k.m0, k.m1 = startMover(t, k.b0), startMover(t, k.b1)
	}
	at := k.b0
	if m == meshv1.Mover_MOVER_LOCAL {
		at = k.b1
	}
	k.p, k.d = at.attach(t, "p0"), k.b1.attach(t, "d0")
	return k
}

func (k *pair) baseline(t *testing.T) {
	t.Helper()
	k.b0.baseline(t)
	k.b1.baseline(t)
}
