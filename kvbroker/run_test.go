package kvbroker

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/gpu/layout"
	"leasehold.dev/kvbroker/client"
	"leasehold.dev/mesh"
	"leasehold.dev/mesh/identity"
	"leasehold.dev/mesh/registry/embedded"
	"leasehold.dev/mesh/rpc"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/pagesum"
	"leasehold.dev/protos/proof"
)

// model is the file that `make model` fetches. The broker's module does not import the model's.
func model(t *testing.T) string {
	t.Helper()
	path := os.Getenv("LEASEHOLD_MODEL")
	if path == "" {
		path = filepath.Join("..", "build", "model", "SmolLM2-135M-Instruct.Q4_1.gguf")
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("no model file: run make model (%v)", err)
	}
	return path
}

// world is a mesh over mTLS: an embedded registry and what a test starts in it.
type world struct {
	dir, registry, key, model string
	ca                        *identity.CA
	sign                      ed25519.PrivateKey
}

// background runs a process of the mesh until the test ends.
func background(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("process ended with %v", err)
		}
	})
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "lh") // short: a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	w := &world{dir: dir, key: filepath.Join(dir, "admission.pub"), model: model(t),
		sign: ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))}
	if w.ca, err = identity.NewCA(filepath.Join(dir, "ca")); err != nil {
		t.Fatal(err)
	}
	public := base64.StdEncoding.EncodeToString(w.sign.Public().(ed25519.PublicKey))
	if err := os.WriteFile(w.key, []byte(public), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := mesh.New(t.Context(), mesh.Config{Service: "registry", ID: "r0", Listen: "127.0.0.1:0", Admin: "127.0.0.1:0",
		IdentityDir: w.identity(t, "registry", "r0"), Drain: time.Second, LogLevel: "error"})
	if err != nil {
		t.Fatal(err)
	}
	reg := embedded.NewServer()
	reg.Register(s.GRPC())
	for _, m := range embedded.Methods() {
		s.Allow(m, mesh.Anyone)
	}
	s.OnDrain(func(context.Context) { reg.Close() })
	w.registry = "embedded://" + s.Addr()
	background(t, s.Run)
	return w
}

func (w *world) identity(t *testing.T, service, id string) string {
	t.Helper()
	dir := filepath.Join(w.dir, service+"-"+id)
	if err := w.ca.Issue(dir, service, id); err != nil {
		t.Fatal(err)
	}
	return dir
}

// broker starts a broker and returns its runtime directory and where it serves.
func (w *world) broker(t *testing.T, id, pages string, more ...string) (dir, addr string) {
	t.Helper()
	dir = filepath.Join(w.dir, "run-"+id)
	file := filepath.Join(w.dir, id+".addr")
	background(t, func(ctx context.Context) error {
		return Run(ctx, append([]string{"-identity", w.identity(t, "kvbroker", id), "-registry", w.registry, "-addr-file", file,
			"-model", w.model, "-backend", layout.CPU, "-dir", dir, "-admission-key", w.key, "-pages", pages,
			"-check-share", "1", "-log-level", "error", "-drain", "5s"}, more...))
	})
	eventually(t, id+" serves", func() bool {
		a, err := mesh.ReadAddresses(file)
		addr = a.GRPC
		return err == nil
	})
	return dir, addr
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(30 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

func (w *world) attach(t *testing.T, dir, worker string) *client.Client {
	t.Helper()
	c, err := client.Attach(t.Context(), client.Config{Dir: dir, Worker: worker})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestPagesMoveBetweenProcessesOverTLS(t *testing.T) {
	for _, framing := range []string{"raw", "grpc"} {
		for _, lanes := range []string{"1", "2"} {
			t.Run(framing+", "+lanes+" lanes", func(t *testing.T) { pagesMove(t, framing, lanes) })
		}
	}
}

func pagesMove(t *testing.T, framing, lanes string) {
	w := newWorld(t)
	dir0, _ := w.broker(t, "b0", "4")
	dir1, addr1 := w.broker(t, "b1", "6", "-pull-lanes", lanes, "-lane-framing", framing)
	p, d := w.attach(t, dir0, "p0"), w.attach(t, dir1, "d0")
	info := d.Info()

	ids := make([]int32, 129)
	a := &meshv1.Admission{Id: proof.NewID(), Tenant: "t0", ModelRevision: info.ModelRevision, PromptTokens: 129, MaxNewTokens: 20,
		Nonce: proof.NewID(), Prefill: "p0", Decode: "d0", PrefillBroker: "b0", DecodeBroker: "b1", Mover: meshv1.Mover_MOVER_GRPC,
		DeadlineUnixMs: time.Now().Add(time.Minute).UnixMilli()}
	a.PromptDigest = proof.PromptDigest(a.Nonce, a.Tenant, a.ModelRevision, ids)
	ticket, err := proof.Sign(w.sign, a)
	if err != nil {
		t.Fatal(err)
	}
	var dst *client.Lease
	eventually(t, "b1 finds b0", func() bool {
		dst, err = d.Reserve(t.Context(), client.Reservation{Admission: ticket, Role: brokerv1.Role_ROLE_DESTINATION, TokenIDs: ids, Pages: 3})
		if err != nil && errs.KindOf(err) != errs.Unavailable {
			t.Fatal(err)
		}
		return err == nil
	})
	src, err := p.Reserve(t.Context(), client.Reservation{Admission: ticket, Role: brokerv1.Role_ROLE_SOURCE, TokenIDs: ids, Pages: 2})
	if err != nil {
		t.Fatal(err)
	}
	seals := fillPages(t, w, p, src)
	first := bytes.Clone(p.Mapping().Page(src.Pages[0])) // P's pages are cleared as soon as the Pull has ended
	if _, err := src.Finish(t.Context(), seals, 128); err != nil {
		t.Fatal(err)
	}
	o, err := dst.AwaitOwned(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if o.Rows() != 128 || o.BytesMoved() != 2*info.PageBytes {
		t.Errorf("%d rows in %d bytes, want 128 in %d", o.Rows(), o.BytesMoved(), 2*info.PageBytes)
	}
	if !bytes.Equal(first, d.Mapping().Page(o.Pages()[0])) {
		t.Error("page 0 differs")
	}
	for l, ok := range map[*client.Lease]bool{src: true, dst: true} {
		if err := l.Retire(t.Context(), ok, "", nil); err != nil {
			t.Error(err)
		}
	}
	eventually(t, "both pools are free", func() bool { return p.Pool().Free == 4 && d.Pool().Free == 6 })
	onlyBrokersCallPeers(t, w, addr1)
}

// fillPages writes two pages of some KV and returns their seals.
func fillPages(t *testing.T, w *world, c *client.Client, l *client.Lease) (seals []client.Seal) {
	t.Helper()
	lay, revision, _, err := layout.FromFile(w.model, layout.CPU)
	if err != nil {
		t.Fatal(err)
	}
	hash := lay.Hash()
	keys := pagesum.Expand(hash[:], revision[:], lay.Shape())
	for place := range uint32(2) {
		page := c.Mapping().Page(l.Pages[place])
		for i := range page {
			page[i] = byte(i>>8) ^ byte(i*31) ^ byte(place+1)
		}
		sum, _, err := engine.PageSum(lay, page, 64, keys)
		if err != nil {
			t.Fatal(err)
		}
		seals = append(seals, client.Seal{Index: place, Rows: 64, Digest: sum})
	}
	return seals
}

func onlyBrokersCallPeers(t *testing.T, w *world, addr string) {
	t.Helper()
	for _, tt := range []struct {
		service, id string
		handshake   errs.Kind
		describeOK  bool
	}{
		{service: "kvbroker", id: "b7", handshake: errs.Invalid, describeOK: true},
		{service: "decode", id: "d0", handshake: errs.Denied, describeOK: true},
		{service: "router", id: "r0", handshake: errs.Denied, describeOK: true},
		{service: "stranger", id: "s0", handshake: errs.Denied},
	} {
		who, err := identity.Load(w.identity(t, tt.service, tt.id))
		if err != nil {
			t.Fatal(err)
		}
		cc, err := rpc.Dial(addr, rpc.DialOptions(who.ClientCreds("kvbroker", "b1"), nil)...)
		if err != nil {
			t.Fatal(err)
		}
		handshake(t, cc, tt.service+"/"+tt.id, tt.id, tt.handshake)
		out, err := brokerv1.NewInfoServiceClient(cc).Describe(t.Context(), &brokerv1.DescribeRequest{})
		if (err == nil) != tt.describeOK {
			t.Errorf("Describe by %s/%s = %v, want ok %v", tt.service, tt.id, err, tt.describeOK)
		}
		if err == nil && (out.Identity.Name != "b1" || len(out.Workers) != 1) {
			t.Errorf("Describe = %v", out)
		}
		cc.Close()
	}
}

// handshake sends one that names another layout: a broker learns that it differs, anybody else nothing.
func handshake(t *testing.T, cc grpc.ClientConnInterface, who, name string, want errs.Kind) {
	t.Helper()
	_, err := brokerv1.NewPeerServiceClient(cc).Handshake(t.Context(), &brokerv1.HandshakeRequest{
		From: &brokerv1.BrokerIdentity{Name: name, Instance: proof.NewID(), Protocol: 1, LayoutHash: make([]byte, 32)}})
	if errs.KindOf(err) != want || want == errs.Denied && strings.Contains(err.Error(), "layout") {
		t.Errorf("Handshake by %s = %v, want %v", who, err, want)
	}
	_, err = brokerv1.NewPeerServiceClient(cc).Drained(t.Context(), &brokerv1.DrainedRequest{From: name, FromInstance: proof.NewID(), AdmissionId: proof.NewID()})
	if denied := err != nil && errs.KindOf(err) == errs.Denied; denied != (want == errs.Denied) || err != nil && !denied {
		t.Errorf("Drained by %s = %v, want denied %v", who, err, want == errs.Denied)
	}
}

func TestRunRefuses(t *testing.T) {
	w := &world{dir: t.TempDir(), model: model(t)}
	key := filepath.Join(w.dir, "key")
	if err := os.WriteFile(key, []byte(base64.StdEncoding.EncodeToString(make([]byte, 32))), 0o600); err != nil {
		t.Fatal(err)
	}
	wide := filepath.Join(w.dir, "wide")
	if err := os.Mkdir(wide, 0o755); err != nil {
		t.Fatal(err)
	}
	good := map[string]string{"-id": "b0", "-model": w.model, "-dir": filepath.Join(w.dir, "run"), "-admission-key": key, "-pages": "2", "-backend": "cpu"}
	for _, tt := range []struct {
		name, flag, value string
		want              errs.Kind
	}{
		{"an unknown back end", "-backend", "cuda", errs.Invalid},
		{"a file that is no model", "-model", key, errs.Invalid},
		{"a file that is no key", "-admission-key", w.model, errs.Invalid},
		{"a directory open to others", "-dir", wide, errs.Denied},
		{"a share over 1", "-check-share", "2", errs.Invalid},
		{"raw lanes in plain text for other hosts", "-data-listen", "0.0.0.0:0", errs.Invalid},
		{"raw lanes on no address", "-data-listen", "127.0.0.1", errs.Invalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := []string{"-insecure", "-log-level", "error"}
			for f, v := range good {
				if f != tt.flag {
					args = append(args, f, v)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if err := Run(ctx, append(args, tt.flag, tt.value)); errs.KindOf(err) != tt.want {
				t.Errorf("Run = %v (%v), want %v", err, errs.KindOf(err), tt.want)
			}
		})
	}
}
