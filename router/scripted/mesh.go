package scripted

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"leasehold.dev/mesh/peers"
	"leasehold.dev/mesh/registry"
	"leasehold.dev/protos/errs"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	prefillv1 "leasehold.dev/protos/gen/leasehold/prefill/v1"
)

// Mesh is a registry and workers. Its workers trust Public.
type Mesh struct {
	t       testing.TB
	Key     ed25519.PrivateKey
	Public  ed25519.PublicKey
	Prefill *peers.Set
	Decode  *peers.Set
	Brokers *peers.Set

	Revision, Tokenizer []byte // of the model that its workers hold; set before the first worker

	mu      sync.Mutex
	sets    map[string][]registry.Instance
	watch   map[string][]chan []registry.Instance
	handed  map[string]chan handover // by admission id
	brokers map[string]*Broker
}

// handover stands for the brokers: what P's broker tells D's.
type handover struct {
	verdict *meshv1.PrefillVerdict
	err     error
}

// Hash is 32 bytes that say word.
func Hash(word string) []byte { h := sha256.Sum256([]byte(word)); return h[:] }

// New starts an empty mesh that ends with the test.
func New(t testing.TB) *Mesh {
	t.Helper()
	m := &Mesh{t: t, Revision: Hash("weights"), Tokenizer: Hash("tokenizer"), sets: map[string][]registry.Instance{}, watch: map[string][]chan []registry.Instance{}, handed: map[string]chan handover{}, brokers: map[string]*Broker{}}
	var err error
	if m.Public, m.Key, err = ed25519.GenerateKey(nil); err != nil {
		t.Fatal(err)
	}
	dial := func(in registry.Instance) (*grpc.ClientConn, error) {
		return grpc.NewClient("passthrough:///"+in.Address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry())
	}
	for service, set := range map[string]**peers.Set{"prefill": &m.Prefill, "decode": &m.Decode, "kvbroker": &m.Brokers} {
		if *set, err = peers.Watch(t.Context(), m, service, dial); err != nil {
			t.Fatal(err)
		}
		t.Cleanup((*set).Close)
	}
	return m
}

// Register is not used by the router's tests.
func (m *Mesh) Register(context.Context, registry.Instance, func(context.Context) error) (func(context.Context) error, error) {
	return nil, errs.New(errs.Internal, "scripted: nothing registers here")
}

// Watch follows service.
func (m *Mesh) Watch(ctx context.Context, service string) (<-chan []registry.Instance, error) {
	in, out := make(chan []registry.Instance, 16), make(chan []registry.Instance)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watch[service] = append(m.watch[service], in)
	go func() {
		defer close(out)
		for {
			select {
			case set := <-in:
				select {
				case out <- set:
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, nil
}

// Leave takes a worker out of the registry.
func (m *Mesh) Leave(service, id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.publish(service, slices.DeleteFunc(slices.Clone(m.sets[service]), func(in registry.Instance) bool { return in.ID == id }))
}

func (m *Mesh) publish(service string, set []registry.Instance) {
	m.sets[service] = set
	for _, w := range m.watch[service] {
		w <- set
	}
}

func (m *Mesh) join(service, id, address string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	set := append(slices.Clone(m.sets[service]), registry.Instance{Service: service, ID: id, Address: address})
	slices.SortFunc(set, func(a, b registry.Instance) int { return strings.Compare(a.ID, b.ID) })
	m.publish(service, set)
}

func (m *Mesh) handover(admission []byte) chan handover {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.handed[string(admission)]
	if c == nil {
		c = make(chan handover, 1)
		m.handed[string(admission)] = c
	}
	return c
}

// Status is of a ready worker of broker, which has 100 pages, and a limit and a promise of 1,000 tokens.
func (m *Mesh) Status(id, broker string) *meshv1.WorkerStatus {
	return &meshv1.WorkerStatus{
		Id: id, Broker: broker, BrokerInstance: Hash(broker)[:16], Model: "m", ModelRevision: m.Revision,
		TokenizerRevision: m.Tokenizer, LayoutHash: Hash("layout"), NumericsClass: "ref-1", LimitTokens: 1000, PromisedTokens: 1000,
		PoolPages: 100, FreePages: 100, Ready: true, GuardsOn: true,
		Movers: []meshv1.Mover{meshv1.Mover_MOVER_LOCAL, meshv1.Mover_MOVER_GRPC},
	}
}

// server runs a worker's gRPC server until stop or the test's end.
func (m *Mesh) server(service, id string, register func(*grpc.Server)) (addr string, stop func()) {
	m.t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		m.t.Fatal(err)
	}
	s := grpc.NewServer(grpc.StreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
		return errs.ToStatus(h(srv, ss))
	}), grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
		out, err := h(ctx, req)
		return out, errs.ToStatus(err)
	}))
	register(s)
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(lis) })
	stop = sync.OnceFunc(func() { s.Stop(); wg.Wait() })
	m.t.Cleanup(stop)
	m.join(service, id, lis.Addr().String())
	return lis.Addr().String(), stop
}

// status is a worker's status, and who waits for its next one.
type status struct {
	mu      sync.Mutex
	now     *meshv1.WorkerStatus
	changed chan struct{}
}

func newStatus(s *meshv1.WorkerStatus) *status { return &status{now: s, changed: make(chan struct{})} }

// Say changes what the worker says of itself.
func (s *status) Say(now *meshv1.WorkerStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = now
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *status) watch(ctx context.Context, send func(*meshv1.WorkerStatus) error) error {
	for {
		s.mu.Lock()
		now, changed := s.now, s.changed
		s.mu.Unlock()
		if err := send(now); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-beat():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

var (
	_ registry.Registry              = (*Mesh)(nil)
	_ decodev1.DecodeServiceServer   = (*Decode)(nil)
	_ prefillv1.PrefillServiceServer = (*Prefill)(nil)
)
