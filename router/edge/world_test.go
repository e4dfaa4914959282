package edge_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"leasehold.dev/model"
	"leasehold.dev/model/modelfile"
	"leasehold.dev/router/choose"
	"leasehold.dev/router/edge"
	"leasehold.dev/router/fleet"
	"leasehold.dev/router/flow"
	"leasehold.dev/router/keys"
	"leasehold.dev/router/meter"
	"leasehold.dev/router/prompt"
	"leasehold.dev/router/receipt"
	"leasehold.dev/router/record"
	"leasehold.dev/router/retry"
	"leasehold.dev/router/scripted"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// the model file's tokenizer and template are real; its weights are not used here
var file = sync.OnceValues(func() (*model.Model, error) { return model.Load(path) })

var path string

// world is a router with scripted workers and two tenants: acme (key "ka") and bolt (key "kb", one request at once).
type world struct {
	*scripted.Mesh
	t       *testing.T
	svc     *edge.Service
	url     string
	addr    string
	log     *bytes.Buffer // what the router logged
	records *record.Ring
	keys    string // file
}

const name = "smollm2-135m-instruct"

func hashed(key string) string { h := sha256.Sum256([]byte(key)); return hex.EncodeToString(h[:]) }

func newWorld(t *testing.T, set ...func(*edge.Service)) *world {
	t.Helper()
	path = modelfile.Path(t)
	m, err := file()
	if err != nil {
		t.Fatal(err)
	}
	mesh := scripted.New(t)
	mesh.Revision, mesh.Tokenizer = m.Revision[:], m.TokenizerRevision[:]
	w := &world{Mesh: mesh, t: t, log: &bytes.Buffer{}, records: &record.Ring{}, keys: filepath.Join(t.TempDir(), "keys.yaml")}
	doc := fmt.Sprintf("keys:\n- {tenant: acme, sha256: %s}\n- {tenant: bolt, sha256: %s}\ntenants:\n  bolt: {max_concurrent: 1}\n", hashed("ka"), hashed("kb"))
	if err := os.WriteFile(w.keys, []byte(doc), 0o600); err != nil {
		t.Fatal(err)
	}
	ring, err := keys.Open(w.keys)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(&locked{w: w.log}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	fl := fleet.New(mesh.Prefill, mesh.Decode, log)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { fl.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	served := choose.Model{Revision: string(m.Revision[:]), Tokenizer: string(m.TokenizerRevision[:]), Promise: 900}
	w.svc = &edge.Service{
		Keys: ring, Prompt: prompt.New(m.Tokenizer, m.Template), Vocab: uint32(m.Tokenizer.Vocab()), Special: m.Tokenizer.IsControl,
		Records: w.records, Meter: &meter.Meter{}, Log: log, Created: time.Unix(1700000000, 0), Fingerprint: "fp_0123456789",
		Runner: &flow.Runner{Config: flow.Config{Fleet: fl, Key: mesh.Key, Model: served, ModelName: name, Default: 64, Times: flow.DefaultTimes,
			Budget: retry.NewBudget(0.1, 10), Meter: &meter.Meter{}, Log: log}},
	}
	w.svc.Receipts = w.office()
	for _, f := range set {
		f(w.svc)
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	admin := http.NewServeMux()
	for _, p := range []string{"/healthz", "/readyz", "/metrics"} {
		admin.HandleFunc(p, func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, "admin "+p) })
	}
	admin.Handle("/debug/requests", w.records)
	s, err := edge.NewServer(context.Background(), lis, w.svc, admin)
	if err != nil {
		t.Fatal(err)
	}
	s.Serve()
	t.Cleanup(s.Close)
	w.addr, w.url = s.Addr(), "http://"+s.Addr()
	return w
}

// office keeps receipts and reports in the test's folder.
func (w *world) office() *receipt.Issuer {
	w.t.Helper()
	path := filepath.Join(w.t.TempDir(), "receipt.pem")
	ring, err := receipt.OpenRing(path)
	if err != nil {
		w.t.Fatal(err)
	}
	store, err := receipt.NewStore(receipt.DefaultLimits)
	if err != nil {
		w.t.Fatal(err)
	}
	desk, err := receipt.OpenDesk(path+".reports", func(what receipt.Change, r receipt.Report) {
		w.svc.Log.Error("report", "change", string(what), "tenant", r.Tenant, "replay", r.Replay)
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return &receipt.Issuer{Ring: ring, Store: store, Desk: desk}
}

// locked serialises writes of a log.
type locked struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// pair starts one worker of each kind and waits for them.
func (w *world) pair() (*scripted.Prefill, *scripted.Decode) {
	w.t.Helper()
	p, d := w.NewPrefill(w.Status("p", "b1")), w.NewDecode(w.Status("d", "b2"))
	w.settle()
	return p, d
}

func (w *world) settle() {
	w.t.Helper()
	w.eventually("a pair is ready", func() bool { ok, _ := choose.Ready(w.svc.Runner.Fleet.Snapshot(), w.svc.Runner.Model); return ok })
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			w.t.Fatalf("not within 10 s: %s", what)
		}
	}
}

// client does not keep connections, so that none outlives a test.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// reply is an answer whose body was read.
type reply struct {
	StatusCode int
	Header     http.Header
}

// send is one HTTP request; header lines are "Name: value".
func (w *world) send(method, path, body string, header ...string) (reply, string) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, h := range header {
		k, v, _ := strings.Cut(h, ": ")
		req.Header.Add(k, v)
	}
	res, err := client.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return reply{res.StatusCode, res.Header}, string(b)
}

func (w *world) post(path, body string) (reply, string) {
	w.t.Helper()
	return w.send("POST", path, body, "Authorization: Bearer ka", "Content-Type: application/json")
}
