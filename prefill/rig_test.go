package prefill

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"leasehold.dev/gpu/layout"
	"leasehold.dev/gpu/tinymodel"
	"leasehold.dev/gpu/worker"
	"leasehold.dev/kvbroker/client"
	"leasehold.dev/kvbroker/server"
	"leasehold.dev/mesh/audit"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	prefillv1 "leasehold.dev/protos/gen/leasehold/prefill/v1"
	"leasehold.dev/protos/proof"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const backend = layout.Ref

// rig is a broker, a prefill worker p0 on it, and a decode worker d0 that the test plays. Pages are handed over in the
// broker's pool.
type rig struct {
	audit   *audit.Log // nil: none
	t       *testing.T
	model   string
	dir     string
	key     ed25519.PrivateKey
	keyFile string
	pages   uint32

	broker *server.Broker
	host   *Host
	svc    *Service
}

func newRig(t *testing.T, o tinymodel.Options, pages uint32) *rig {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	g := &rig{t: t, model: tinymodel.Write(t, o), dir: filepath.Join(t.TempDir(), "b"), key: private, pages: pages}
	g.keyFile = filepath.Join(t.TempDir(), "admission.pem")
	if err := os.WriteFile(g.keyFile, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	g.startBroker()
	t.Cleanup(func() { g.broker.Close() })
	return g
}

func (g *rig) startBroker() {
	g.t.Helper()
	l, revision, tokenizer, err := layout.FromFile(g.model, backend)
	if err != nil {
		g.t.Fatal(err)
	}
	g.broker, err = server.New(server.Config{
		Name: "b0", Dir: g.dir, Layout: l, ModelRevision: revision, TokenizerRevision: tokenizer, CheckShare: 1,
		NumericsClass: layout.NumericsClass(backend), Pages: g.pages, AdmissionKey: g.key.Public().(ed25519.PublicKey),
	})
	if err != nil {
		g.t.Fatal(err)
	}
}

// startWorker runs p0 until the test ends.
func (g *rig) startWorker(change func(*worker.Config)) {
	g.t.Helper()
	c := worker.Config{
		Model: g.model, Backend: backend, Threads: 1, BrokerDir: g.dir, AdmissionKey: g.keyFile, Promise: 128, Chunk: 64,
		Sequences: 4, Queue: 8, QueueTokens: 1 << 16,
	}
	if change != nil {
		change(&c)
	}
	host, err := worker.Open(c, worker.Own{ID: "p0"}, Broker(g.dir, "p0", nil))
	if err != nil {
		g.t.Fatal(err)
	}
	g.host, g.svc = host, NewService(host, slog.New(slog.DiscardHandler), g.audit, nil)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); host.Run(ctx) }()
	g.t.Cleanup(func() { cancel(); <-ended; host.Close() })
	g.until(func(s *meshv1.WorkerStatus) bool { return s.Ready })
}

// until waits for a status that f accepts.
func (g *rig) until(f func(*meshv1.WorkerStatus) bool) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var last *meshv1.WorkerStatus
	enough := errors.New("enough")
	err := g.host.Watch(ctx, nil, g.svc.status, func(s *meshv1.WorkerStatus) error {
		if last = s; f(s) {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		g.t.Fatalf("no such status: %v; the last was %v", err, last)
	}
}

// allFree waits until no page is used.
func (g *rig) allFree() {
	g.t.Helper()
	g.until(func(s *meshv1.WorkerStatus) bool {
		return s.FreePages == g.pages && s.QueuedTokens == 0 && s.Sequences == 0
	})
}

// decode attaches as a decode worker.
func (g *rig) decode() *client.Client {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := client.Attach(ctx, client.Config{Dir: g.dir, Worker: "d0"})
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = c.Close() })
	return c
}

func prompt(n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32((i*i*13 + i*7 + 5) % 40000)
	}
	return ids
}

// request is a prompt of n tokens that goes on by new ones.
func (g *rig) request(n, fresh int, change func(*meshv1.Admission)) *prefillv1.RunRequest {
	g.t.Helper()
	ids := prompt(n)
	a := &meshv1.Admission{
		Id: proof.NewID(), Nonce: proof.NewID(), Tenant: "acme", Model: "tiny", ModelRevision: g.revision(),
		PromptTokens: uint32(n), MaxNewTokens: uint32(fresh), Prefill: "p0", Decode: "d0", PrefillBroker: "b0", DecodeBroker: "b0",
		Mover: meshv1.Mover_MOVER_LOCAL, DeadlineUnixMs: time.Now().Add(time.Minute).UnixMilli(),
	}
	if change != nil {
		change(a)
	}
	a.PromptDigest = proof.PromptDigest(a.Nonce, a.Tenant, a.ModelRevision, ids)
	s, err := proof.Sign(g.key, a)
	if err != nil {
		g.t.Fatal(err)
	}
	return &prefillv1.RunRequest{Admission: s, TokenIds: ids}
}

func (g *rig) revision() []byte {
	r := g.host.Model().Revision
	return r[:]
}

// reserve is the decode side's first half: the Pull is parked when it returns.
func (g *rig) reserve(d *client.Client, r *prefillv1.RunRequest, fresh int) *client.Lease {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l, err := d.Reserve(ctx, client.Reservation{
		Admission: r.Admission, Role: brokerv1.Role_ROLE_DESTINATION, TokenIDs: r.TokenIds,
		Pages: uint32(len(r.TokenIds)+fresh-1+63) / 64,
	})
	if err != nil {
		g.t.Fatal(err)
	}
	return l
}

func retire(t *testing.T, l *client.Lease, ok bool) {
	t.Helper()
	if err := l.Retire(context.Background(), ok, "", nil); err != nil {
		t.Errorf("retire: %v", err)
	}
}
