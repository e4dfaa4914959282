package mesh

import (
	"encoding/json"
	"flag"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"leasehold.dev/mesh/identity"
	"leasehold.dev/protos/errs"
)

func TestNewRefuses(t *testing.T) {
	ca, err := identity.NewCA(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	for _, c := range []struct {
		why, says string
		change    func(*Config)
	}{
		{"neither certificate nor -insecure", "-identity", func(c *Config) { c.Insecure = false }},
		{"both of them", "exclude", func(c *Config) { c.IdentityDir = "x" }},
		{"plain text on every address", "loopback", func(c *Config) { c.Listen = "0.0.0.0:0" }},
		{"plain text on an empty host", "loopback", func(c *Config) { c.Listen = ":0" }},
		{"plain text on a network's address", "loopback", func(c *Config) { c.Listen = "10.1.2.3:0" }},
		{"a listen address without port", "-insecure", func(c *Config) { c.Listen = "127.0.0.1" }},
		{"no service", "service", func(c *Config) { c.Service = "" }},
		{"no id", "-id", func(c *Config) { c.ID = "" }},
		{"an id with a slash", "-id", func(c *Config) { c.ID = "a/b" }},
		{"no drain time", "-drain", func(c *Config) { c.Drain = 0 }},
		{"an unknown level", "-log-level", func(c *Config) { c.LogLevel = "loud" }},
		{"an unknown registry", "registry", func(c *Config) { c.Registry = "etcd://127.0.0.1:1" }},
		{"an OTLP endpoint that is no URL", "OTLP", func(c *Config) { c.OTLP = "127.0.0.1:4317" }},
		{"a taken address", "-listen", func(c *Config) { c.Listen = busy.Addr().String() }},
		{"a taken admin address", "-admin", func(c *Config) { c.Admin = busy.Addr().String() }},
		{"a certificate directory that is not there", "identity", func(c *Config) { c.Insecure, c.IdentityDir = false, filepath.Join(t.TempDir(), "no") }},
		{"another instance's certificate", "d2", func(c *Config) { *c = certified(t, ca, "decode", "d2"); c.ID = "d1" }},
		{"another service's certificate", "prefill", func(c *Config) { *c = certified(t, ca, "prefill", "d1"); c.Service = "decode" }},
		{"every address, and none to advertise", "-advertise", func(c *Config) {
			*c = certified(t, ca, "decode", "d1")
			c.Listen, c.Registry = "0.0.0.0:0", "embedded://127.0.0.1:1"
		}},
	} {
		conf := plainConfig("decode", "d1")
		c.change(&conf)
		_, err := New(t.Context(), conf)
		if errs.KindOf(err) != errs.Invalid || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want invalid and a word of %q", c.why, err, c.says)
		}
	}
}

func TestTheCertificateNamesTheInstance(t *testing.T) {
	ca, err := identity.NewCA(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := certified(t, ca, "decode", "d1")
	c.ID = ""
	if s := newServer(t, c); s.ID() != "d1" {
		t.Errorf("ID = %q, want the certificate's", s.ID())
	}
}

func TestFlags(t *testing.T) {
	c := Config{Service: "decode"}
	fs := flag.NewFlagSet("decode", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	c.Flags(fs)
	err := fs.Parse(strings.Fields("-id d1 -listen 127.0.0.1:1 -admin 127.0.0.1:2 -identity /i -registry embedded://a:3 -insecure -drain 3s " +
		"-log-level debug -addr-file /f -advertise h:4 -otlp http://o:5 -audit-dir /a -audit-file-size 6 -audit-keep 7"))
	if err != nil {
		t.Fatal(err)
	}
	want := Config{Service: "decode", ID: "d1", Listen: "127.0.0.1:1", Admin: "127.0.0.1:2", IdentityDir: "/i", Registry: "embedded://a:3",
		Insecure: true, Drain: 3 * time.Second, LogLevel: "debug", AddrFile: "/f", Advertise: "h:4", OTLP: "http://o:5",
		AuditDir: "/a", AuditFileSize: 6, AuditKeep: 7}
	got, _ := json.Marshal(c.comparable())
	wanted, _ := json.Marshal(want.comparable())
	if string(got) != string(wanted) {
		t.Errorf("got  %s\nwant %s", got, wanted)
	}
}

// comparable is c without what JSON cannot hold.
func (c Config) comparable() Config { c.LogOutput = nil; return c }

func TestAddressFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "addr.json")
	if _, err := ReadAddresses(file); errs.KindOf(err) != errs.NotFound {
		t.Errorf("before: %v, want not found", err)
	}
	c := plainConfig("decode", "d1")
	c.AddrFile = file
	s := newServer(t, c)
	stop := running(t, s)
	var got Addresses
	poll(t, "the file", func() bool {
		var err error
		if got, err = ReadAddresses(file); err != nil && errs.KindOf(err) != errs.NotFound {
			t.Fatal(err)
		}
		return err == nil
	})
	if got.GRPC != s.Addr() || got.Admin != s.AdminAddr() || strings.HasSuffix(got.GRPC, ":0") {
		t.Errorf("got %+v, want %s and %s", got, s.Addr(), s.AdminAddr())
	}
	if code, body := get(t, "http://"+got.Admin+"/healthz"); code != 200 || body != "ok\n" {
		t.Errorf("/healthz = %d %q", code, body)
	}
	if code, body := get(t, "http://"+got.Admin+"/debug/goroutines"); code != 200 || !strings.HasPrefix(body, "goroutine profile: total ") {
		t.Errorf("/debug/goroutines = %d %.100q", code, body)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadAddresses(file); errs.KindOf(err) != errs.Invalid {
		t.Errorf("half a file: %v, want invalid", err)
	}
}

func TestAnAddressFileThatCannotBeWrittenEndsRun(t *testing.T) {
	c := plainConfig("decode", "d1")
	c.AddrFile = filepath.Join(t.TempDir(), "no", "addr.json")
	if err := newServer(t, c).Run(t.Context()); errs.KindOf(err) != errs.Invalid {
		t.Errorf("Run = %v, want invalid", err)
	}
}
