package decode

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"leasehold.dev/gpu/layout"
	"leasehold.dev/gpu/tinymodel"
	"leasehold.dev/gpu/worker"
	"leasehold.dev/kvbroker/client"
	"leasehold.dev/kvbroker/server"
	"leasehold.dev/protos/errs"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/proof"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const backend = layout.Ref

// rig is two brokers that know each other, and a decode worker d0 on the first. The test plays prefill: p0 on either.
type rig struct {
	t       *testing.T
	model   string
	key     ed25519.PrivateKey
	keyFile string
	pages   uint32
	nodes   map[string]*node // b0, b1

	host *Host
	svc  *Service
}

type node struct {
	dir    string
	broker *server.Broker
	conn   *grpc.ClientConn
}

// Call implements server.Peers.
func (g *rig) Call(name string, f func(grpc.ClientConnInterface) error) error {
	n := g.nodes[name]
	if n == nil {
		return errs.New(errs.Unavailable, "no broker %q", name)
	}
	return f(n.conn)
}

// More implements the broker's Peers.
func (g *rig) More(string, int) []grpc.ClientConnInterface { return nil }

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
	g := &rig{t: t, model: tinymodel.Write(t, o), key: private, pages: pages, nodes: map[string]*node{}}
	g.keyFile = filepath.Join(t.TempDir(), "admission.pem")
	if err := os.WriteFile(g.keyFile, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"b0", "b1"} {
		g.nodes[name] = &node{dir: filepath.Join(t.TempDir(), name)}
		g.startBroker(name)
		t.Cleanup(func() { g.nodes[name].broker.Close() })
		g.serve(name)
	}
	return g
}

func (g *rig) startBroker(name string) {
	g.t.Helper()
	l, revision, tokenizer, err := layout.FromFile(g.model, backend)
	if err != nil {
		g.t.Fatal(err)
	}
	g.nodes[name].broker, err = server.New(server.Config{
		Name: name, Dir: g.nodes[name].dir, Layout: l, ModelRevision: revision, TokenizerRevision: tokenizer, CheckShare: 1,
		NumericsClass: layout.NumericsClass(backend), Pages: g.pages, AdmissionKey: g.key.Public().(ed25519.PublicKey), Peers: g,
	})
	if err != nil {
		g.t.Fatal(err)
	}
}

// serve puts a broker's peer service on loopback.
func (g *rig) serve(name string) {
	g.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		g.t.Fatal(err)
	}
	s := grpc.NewServer(
		grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			resp, err := next(ctx, req)
			return resp, errs.ToStatus(err)
		}),
		grpc.StreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			return errs.ToStatus(next(srv, ss))
		}))
	g.nodes[name].broker.Register(s)
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.Serve(ln) }()
	g.nodes[name].conn, err = grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = g.nodes[name].conn.Close(); s.Stop(); <-ended })
}

// config is a worker's on a broker.
func (g *rig) config(broker string) worker.Config {
	return worker.Config{
		Model: g.model, Backend: backend, Threads: 1, BrokerDir: g.nodes[broker].dir, AdmissionKey: g.keyFile, Promise: 256,
		Chunk: 64, Sequences: 8, Queue: 16, QueueTokens: 1 << 16,
	}
}

// startWorker runs d0 on b0 until the test ends.
func (g *rig) startWorker(change func(*worker.Config, *Options)) {
	g.t.Helper()
	c := g.config("b0")
	o := Options{Movers: []meshv1.Mover{meshv1.Mover_MOVER_LOCAL, meshv1.Mover_MOVER_GRPC}, Log: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&c, &o)
	}
	g.host = g.runHost(c, "d0")
	g.svc = NewService(g.host, o)
	g.until(func(s *meshv1.WorkerStatus) bool { return s.Ready })
}

func (g *rig) runHost(c worker.Config, id string) *Host {
	g.t.Helper()
	host, err := worker.Open(c, worker.Own{ID: id}, Broker(c.BrokerDir, id, nil))
	if err != nil {
		g.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); host.Run(ctx) }()
	g.t.Cleanup(func() { cancel(); <-ended; host.Close() })
	return host
}

// until waits for a status that f accepts.
func (g *rig) until(f func(*meshv1.WorkerStatus) bool) {
	g.t.Helper()
	watch(g.t, g.host, g.svc.status, f)
}

func watch(t *testing.T, h *Host, status func() *meshv1.WorkerStatus, f func(*meshv1.WorkerStatus) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var last *meshv1.WorkerStatus
	enough := errors.New("enough")
	err := h.Watch(ctx, nil, status, func(s *meshv1.WorkerStatus) error {
		if last = s; f(s) {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		t.Fatalf("no such status: %v; the last was %v", err, last)
	}
}

// allFree waits until no page of d0's broker is used.
func (g *rig) allFree() {
	g.t.Helper()
	g.until(func(s *meshv1.WorkerStatus) bool {
		return s.FreePages == g.pages && s.QueuedTokens == 0 && s.Sequences == 0
	})
}

func (g *rig) attach(broker, id string) *client.Client {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := client.Attach(ctx, client.Config{Dir: g.nodes[broker].dir, Worker: id})
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

// request is a prompt of n tokens, unsplit, that goes on by new ones. End tokens do not end it.
func (g *rig) request(n, fresh int, change func(*meshv1.Admission)) *decodev1.GenerateRequest {
	g.t.Helper()
	ids := prompt(n)
	revision := g.host.Model().Revision
	a := &meshv1.Admission{
		Id: proof.NewID(), Nonce: proof.NewID(), Tenant: "acme", Model: "tiny", ModelRevision: revision[:],
		PromptTokens: uint32(n), MaxNewTokens: uint32(fresh), Decode: "d0", DecodeBroker: "b0", Mover: meshv1.Mover_MOVER_NONE,
		DeadlineUnixMs: time.Now().Add(time.Minute).UnixMilli(),
	}
	if change != nil {
		change(a)
	}
	a.PromptDigest = proof.PromptDigest(a.Nonce, a.Tenant, a.ModelRevision, ids)
	s, err := proof.Sign(g.key, a)
	if err != nil {
		g.t.Fatal(err)
	}
	return &decodev1.GenerateRequest{Admission: s, TokenIds: ids, Sampling: &decodev1.Sampling{IgnoreEos: true}}
}

// by makes an admission one that m brings the pages for.
func by(m meshv1.Mover) func(*meshv1.Admission) {
	return func(a *meshv1.Admission) {
		if a.Mover = m; m != meshv1.Mover_MOVER_NONE {
			a.Prefill, a.PrefillBroker = "p0", source(m)
		}
	}
}

// source is the broker that prefill uses with a mover.
func source(m meshv1.Mover) string {
	if m == meshv1.Mover_MOVER_GRPC {
		return "b1"
	}
	return "b0"
}

// reply is everything that a Generate sent.
type reply struct {
	admitted *decodev1.Admitted
	verdict  *meshv1.DecodeVerdict
	ids      []int32
	text     string
	finished *decodev1.Finished
}

// generate runs a request to its end. The order of what is sent is checked as it comes.
func (g *rig) generate(ctx context.Context, req *decodev1.GenerateRequest, on func(*decodev1.GenerateResponse)) (*reply, error) {
	r := &reply{}
	err := g.svc.generate(ctx, req, func(m *decodev1.GenerateResponse) error {
		if err := r.add(m); err != nil {
			g.t.Error(err)
		}
		if on != nil {
			on(m)
		}
		return ctx.Err()
	})
	return r, err
}

func (r *reply) add(m *decodev1.GenerateResponse) error {
	switch e := m.Event.(type) {
	case *decodev1.GenerateResponse_Admitted:
		if r.admitted != nil {
			return errors.New("admitted twice")
		}
		r.admitted = e.Admitted
	case *decodev1.GenerateResponse_Verdict:
		if r.admitted == nil || r.verdict != nil {
			return errors.New("a verdict out of order")
		}
		r.verdict = e.Verdict
	case *decodev1.GenerateResponse_Tokens:
		if r.verdict == nil || r.finished != nil {
			return errors.New("tokens out of order")
		}
		for _, t := range e.Tokens.Tokens {
			r.ids = append(r.ids, t.Id)
		}
		r.text += e.Tokens.Text
	case *decodev1.GenerateResponse_Finished:
		if r.verdict == nil || r.finished != nil {
			return errors.New("finished out of order")
		}
		r.finished = e.Finished
	}
	return nil
}

// same compares two answers bit for bit.
func (r *reply) same(o *reply) bool {
	return slices.Equal(r.ids, o.ids) && r.text == o.text && slices.Equal(r.finished.GetLogitDigest(), o.finished.GetLogitDigest()) &&
		slices.Equal(r.finished.GetOutputDigest(), o.finished.GetOutputDigest()) && r.finished.GetReason() == o.finished.GetReason()
}
