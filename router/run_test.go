package router

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"flag"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"leasehold.dev/mesh"
	"leasehold.dev/mesh/discover"
	"leasehold.dev/mesh/identity"
	"leasehold.dev/mesh/registry"
	"leasehold.dev/mesh/registry/embedded"
	"leasehold.dev/model"
	"leasehold.dev/model/modelfile"
	"leasehold.dev/protos/errs"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/router/scripted"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(b)
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// files are what a router is started with; its workers trust key's public half.
func files(t *testing.T, key ed25519.PrivateKey) Config {
	t.Helper()
	dir := t.TempDir()
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	hash := sha256.Sum256([]byte("ka"))
	c := Config{}
	c.Flags(flag.NewFlagSet("router", flag.ContinueOnError))
	c.Model, c.Keys, c.AdmissionKey = modelfile.Path(t), filepath.Join(dir, "keys.json"), filepath.Join(dir, "key.pem")
	c.ReceiptKey = filepath.Join(dir, "receipt.pem")
	for path, b := range map[string][]byte{
		c.Keys:         []byte(`{"keys":[{"tenant":"acme","sha256":"` + hex.EncodeToString(hash[:]) + `"}]}`),
		c.AdmissionKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}),
	} {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.Mesh.ID, c.Mesh.Insecure, c.Mesh.AddrFile, c.Mesh.LogOutput = "router-0", true, filepath.Join(dir, "addr.json"), io.Discard
	c.Mesh.Registry = "embedded://127.0.0.1:1"
	return c
}

// serve runs f until the test ends.
func serve(t *testing.T, f func(context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	var err error
	stopped := false
	stop = func() error {
		if !stopped {
			cancel()
			err, stopped = <-done, true
		}
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

func TestTheProcess(t *testing.T) {
	reg, err := mesh.New(t.Context(), mesh.Config{Service: embedded.Service, ID: "registry", Listen: "127.0.0.1:0", Admin: "127.0.0.1:0", Insecure: true, Drain: time.Second, LogOutput: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	mesh.ServeRegistry(reg)
	serve(t, reg.Run)
	m := scripted.New(t)
	c := files(t, m.Key)
	c.Mesh.Registry = "embedded://" + reg.Addr()
	stop := serve(t, func(ctx context.Context) error { return Run(ctx, c) })

	var addr struct{ GRPC, Admin, HTTP string }
	eventually(t, "the addresses are written", func() bool {
		b, err := os.ReadFile(c.Mesh.AddrFile)
		return err == nil && json.Unmarshal(b, &addr) == nil
	})
	if code, _ := get(t, "http://"+addr.HTTP+"/healthz"); code != 200 {
		t.Errorf("/healthz: %d", code)
	}
	if code, body := get(t, "http://"+addr.HTTP+"/readyz"); code != 503 || !strings.Contains(body, "no decode worker is ready") {
		t.Errorf("/readyz without workers: %d %s", code, body)
	}

	file, err := model.Load(c.Model)
	if err != nil {
		t.Fatal(err)
	}
	m.Revision, m.Tokenizer = file.Revision[:], file.TokenizerRevision[:]
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	hold, release := make(chan struct{}), make(chan struct{})
	p, d := m.NewPrefill(m.Status("p", "b1")), m.NewDecode(m.Status("d", "b2"))
	d.Step = func(ctx context.Context, _ *meshv1.Admission, i int) error {
		if i == 2 {
			close(hold)
			select {
			case <-release:
			case <-ctx.Done():
			}
		}
		return nil
	}
	found, err := discover.Open(c.Mesh.Registry, identity.Plain(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer found.Close()
	for _, in := range []registry.Instance{{Service: "prefill", ID: "p", Address: p.Addr}, {Service: "decode", ID: "d", Address: d.Addr}} {
		leave, err := found.Register(t.Context(), in, func(context.Context) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		defer leave(context.Background()) //nolint:errcheck // the registry may be gone before
	}
	eventually(t, "/readyz with a pair", func() bool { code, _ := get(t, "http://"+addr.HTTP+"/readyz"); return code == 200 })

	answer := make(chan string, 1)
	go func() {
		req, _ := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://"+addr.HTTP+"/v1/chat/completions",
			strings.NewReader(`{"model":"smollm2-135m-instruct","messages":[{"role":"user","content":"Hi"}],"stream":true}`))
		req.Header.Set("Authorization", "Bearer ka")
		res, err := client.Do(req)
		if err != nil {
			answer <- err.Error()
			return
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		answer <- string(b) + errText(err)
	}()
	<-hold
	eventually(t, "/debug/requests shows the running request", func() bool {
		_, body := get(t, "http://"+addr.Admin+"/debug/requests")
		return strings.Contains(body, `"outcome":"running"`) && strings.Contains(body, `"verdicts_equal":true`)
	})
	if _, body := get(t, "http://"+addr.Admin+"/metrics"); !strings.Contains(body, "leasehold_router_reports_open 0\n") || !strings.Contains(body, "leasehold_router_receipts 0\n") {
		t.Errorf("/metrics lacks receipts and reports:\n%s", body)
	}
	if _, body := get(t, "http://"+addr.Admin+"/debug/reports"); body != "{\"reports\":[]}\n" {
		t.Errorf("/debug/reports: %q", body)
	}
	if st, err := os.Stat(c.ReceiptKey); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the receipt key was made as %v, %v; want 0600", st, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- stop() }() // the running request is let end
	eventually(t, "the router takes no new request", func() bool { code, _ := get(t, "http://"+addr.HTTP+"/healthz"); return code == 0 })
	if _, body := get(t, "http://"+addr.Admin+"/metrics"); !strings.Contains(body, `leasehold_router_routes_total{`) || !strings.Contains(body, `route="split:grpc"`) {
		t.Errorf("/metrics lacks the route:\n%s", body)
	}
	close(release)
	if got := <-answer; !strings.Contains(got, `"content":" blue"`) || !strings.HasSuffix(got, "data: [DONE]\n\n") || strings.Count(got, `"leasehold_receipt":"ey`) != 1 {
		t.Errorf("the request that ran while the router drained: %q", got)
	}
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
}

func errText(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

func TestSettingsThatAreRefused(t *testing.T) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	write := func(t *testing.T, b []byte) string {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for why, twist := range map[string]func(*testing.T, *Config){
		"no model":                   func(_ *testing.T, c *Config) { c.Model = "" },
		"no keys":                    func(_ *testing.T, c *Config) { c.Keys = "" },
		"no admission key":           func(_ *testing.T, c *Config) { c.AdmissionKey = "" },
		"no receipt key":             func(_ *testing.T, c *Config) { c.ReceiptKey = "" },
		"a receipt key in no folder": func(t *testing.T, c *Config) { c.ReceiptKey = filepath.Join(t.TempDir(), "no", "key") },
		"a receipt key that is none": func(t *testing.T, c *Config) { c.ReceiptKey = write(t, []byte("x")) },
		"receipts of no time":        func(_ *testing.T, c *Config) { c.Receipts.Keep = 0 },
		"no receipts":                func(_ *testing.T, c *Config) { c.Receipts.Count = 0 },
		"receipts of no bytes":       func(_ *testing.T, c *Config) { c.Receipts.Bytes = 0 },
		"no registry":                func(_ *testing.T, c *Config) { c.Mesh.Registry = "" },
		"a promise of 2^40":          func(_ *testing.T, c *Config) { c.Promise = 1 << 40 },
		"no time":                    func(_ *testing.T, c *Config) { c.Times.Admit = 0 },
		"a ratio of 2":               func(_ *testing.T, c *Config) { c.RetryRatio = 2 },
		"no default max_tokens":      func(_ *testing.T, c *Config) { c.MaxTokens = 0 },
		"a model that is none":       func(t *testing.T, c *Config) { c.Model = write(t, []byte("GGUF")) },
		"keys that are none":         func(t *testing.T, c *Config) { c.Keys = write(t, []byte("keys: []")) },
		"a key that is no PEM":       func(t *testing.T, c *Config) { c.AdmissionKey = write(t, []byte("x")) },
		"a public key":               func(t *testing.T, c *Config) { c.AdmissionKey = write(t, publicPEM(key)) },
		"an address in use":          func(_ *testing.T, c *Config) { c.HTTP = "256.0.0.1:1" },
	} {
		t.Run(why, func(t *testing.T) {
			c := files(t, key)
			twist(t, &c)
			if err := Run(t.Context(), c); errs.KindOf(err) != errs.Invalid {
				t.Errorf("%v, want Invalid", err)
			}
		})
	}
}

func publicPEM(key ed25519.PrivateKey) []byte {
	b, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: b})
}
