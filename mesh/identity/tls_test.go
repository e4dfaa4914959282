package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newCA(t *testing.T) *CA {
	t.Helper()
	ca, err := NewCA(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func issued(t *testing.T, ca *CA, service, id string) *Identity {
	t.Helper()
	dir := t.TempDir()
	if err := ca.Issue(dir, service, id); err != nil {
		t.Fatal(err)
	}
	return loaded(t, dir)
}

func loaded(t *testing.T, dir string) *Identity {
	t.Helper()
	i, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// odd has a certificate that differs from an issued one as change says; it does not go through Load's own checks.
func odd(t *testing.T, ca *CA, change func(*x509.Certificate)) *Identity {
	t.Helper()
	dir, now := t.TempDir(), time.Now()
	c := x509.Certificate{URIs: []*url.URL{spiffe("router", "r1")}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}
	change(&c)
	if err := ca.issue(dir, c); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, CertFile), filepath.Join(dir, KeyFile))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	i := &Identity{dir: dir, now: &material{cert: &pair, roots: roots, service: "router", id: "r1"}}
	for n, f := range files {
		st, err := os.Stat(filepath.Join(dir, f))
		if err != nil {
			t.Fatal(err)
		}
		i.seen[n] = stamp{st.ModTime(), st.Size()}
	}
	return i
}

// serve answers health checks with creds, and says in a header who called.
func serve(t *testing.T, creds credentials.TransportCredentials) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer(grpc.Creds(creds), grpc.UnaryInterceptor(
		func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
			if service, id, ok := Peer(ctx); ok {
				_ = grpc.SetHeader(ctx, metadata.Pairs("caller", service+"/"+id))
			} else if IsPlain(ctx) {
				_ = grpc.SetHeader(ctx, metadata.Pairs("caller", "plain"))
			}
			return h(ctx, req)
		}))
	healthpb.RegisterHealthServer(srv, health.NewServer())
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(ln) }()
	t.Cleanup(func() { srv.Stop(); <-done })
	return ln.Addr().String()
}

// call returns who the server thinks called.
func call(t *testing.T, addr string, creds credentials.TransportCredentials) (string, error) {
	t.Helper()
	cc, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(creds), grpc.WithNoProxy())
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var h metadata.MD
	_, err = healthpb.NewHealthClient(cc).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Header(&h))
	return strings.Join(h.Get("caller"), ","), err
}

func TestHandshakeMatrix(t *testing.T) {
	ours, others := newCA(t), newCA(t)
	decode, router := issued(t, ours, "decode", "d1"), issued(t, ours, "router", "r1")
	stranger, impostor := issued(t, others, "router", "r1"), issued(t, others, "decode", "d1")
	selfSigned := &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{selfSign(t)}}
	for _, c := range []struct {
		why            string
		server, client credentials.TransportCredentials
		caller         string // empty: refused
	}{
		{"both of one CA, the right service and instance", decode.ServerCreds(), router.ClientCreds("decode", "d1"), "router/r1"},
		{"any instance of the service will do", decode.ServerCreds(), router.ClientCreds("decode", ""), "router/r1"},
		{"the server is another service", decode.ServerCreds(), router.ClientCreds("prefill", "d1"), ""},
		{"the server is another instance", decode.ServerCreds(), router.ClientCreds("decode", "d2"), ""},
		{"the client's CA is another one", decode.ServerCreds(), stranger.ClientCreds("decode", "d1"), ""},
		{"the server's CA is another one", impostor.ServerCreds(), router.ClientCreds("decode", "d1"), ""},
		{"the client has no certificate", decode.ServerCreds(), credentials.NewTLS(&tls.Config{InsecureSkipVerify: true}), ""},
		{"the client signed its own certificate", decode.ServerCreds(), credentials.NewTLS(selfSigned), ""},
		{"the client speaks plain text", decode.ServerCreds(), insecure.NewCredentials(), ""},
		{"the client speaks TLS 1.2 only", decode.ServerCreds(), credentials.NewTLS(&tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12,
			Certificates: []tls.Certificate{*router.now.cert}}), ""},
		{"the server speaks plain text", insecure.NewCredentials(), router.ClientCreds("decode", "d1"), ""},
		{"both speak plain text on loopback", Plain().ServerCreds(), Plain().ClientCreds("decode", "d1"), "plain"},
	} {
		t.Run(c.why, func(t *testing.T) {
			got, err := call(t, serve(t, c.server), c.client)
			if got != c.caller || (err == nil) != (c.caller != "") {
				t.Errorf("caller = %q, %v, want %q", got, err, c.caller)
			}
		})
	}
}

func TestCertificateMatrix(t *testing.T) {
	ours := newCA(t)
	decode := issued(t, ours, "decode", "d1")
	uri := func(s ...string) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			c.URIs = nil
			for _, s := range s {
				u, err := url.Parse(s)
				if err != nil {
					t.Fatal(err)
				}
				c.URIs = append(c.URIs, u)
			}
		}
	}
	for _, c := range []struct {
		why    string
		change func(*x509.Certificate)
		ok     bool
		loads  bool // its own process takes it, and Check or the peer finds the fault
	}{
		{"unchanged", func(*x509.Certificate) {}, true, true},
		{"expired", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }, false, true},
		{"not valid yet", func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }, false, true},
		{"for servers only", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }, false, true},
		{"no name", uri(), false, false},
		{"two names", uri("spiffe://leasehold/router/r1", "spiffe://leasehold/decode/d1"), false, false},
		{"another trust domain", uri("spiffe://elsewhere/router/r1"), false, false},
		{"another scheme", uri("https://leasehold/router/r1"), false, false},
		{"no instance", uri("spiffe://leasehold/router"), false, false},
		{"an empty instance", uri("spiffe://leasehold/router/"), false, false},
		{"a longer path", uri("spiffe://leasehold/router/r1/x"), false, false},
		{"a query", uri("spiffe://leasehold/router/r1?x=1"), false, false},
		{"a port", uri("spiffe://leasehold:1/router/r1"), false, false},
		{"an escaped slash", uri("spiffe://leasehold/router/r1%2fx"), false, false},
	} {
		t.Run(c.why, func(t *testing.T) {
			who := odd(t, ours, c.change)
			_, err := call(t, serve(t, decode.ServerCreds()), who.ClientCreds("decode", "d1"))
			if (err == nil) != c.ok {
				t.Errorf("as a client: %v, want ok %v", err, c.ok)
			}
			if _, err := Load(who.dir); (err == nil) != c.loads {
				t.Errorf("Load: %v, want ok %v", err, c.loads)
			}
		})
	}
}

func TestPlainRefusesOtherHosts(t *testing.T) {
	far := fakeConn{local: "127.0.0.1:1", remote: "10.0.0.7:2"}
	if _, _, err := Plain().ServerCreds().ServerHandshake(far); err == nil {
		t.Error("a server took plain text from 10.0.0.7")
	}
	if _, _, err := Plain().ClientCreds("a", "b").Clone().ClientHandshake(t.Context(), "", far); err == nil {
		t.Error("a client spoke plain text to 10.0.0.7")
	}
	near := fakeConn{local: "127.0.0.1:1", remote: "[::1]:2"}
	if _, _, err := Plain().ServerCreds().ServerHandshake(near); err != nil {
		t.Errorf("loopback was refused: %v", err)
	}
}

func TestLoopback(t *testing.T) {
	for addr, want := range map[string]bool{
		"127.0.0.1:1": true, "127.9.9.9:1": true, "[::1]:1": true, "localhost:1": true,
		"0.0.0.0:1": false, "[::]:1": false, ":1": false, "10.0.0.1:1": false, "localhost.example:1": false, "127.0.0.1": false, "": false,
	} {
		if got := Loopback(addr); got != want {
			t.Errorf("Loopback(%q) = %v, want %v", addr, got, want)
		}
	}
}

type fakeConn struct {
	net.Conn
	local, remote string
}

func (f fakeConn) LocalAddr() net.Addr  { return addr(f.local) }
func (f fakeConn) RemoteAddr() net.Addr { return addr(f.remote) }

type addr string

func (addr) Network() string  { return "tcp" }
func (a addr) String() string { return string(a) }

func selfSign(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: serial(), URIs: []*url.URL{spiffe("router", "r1")}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
