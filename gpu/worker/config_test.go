package worker

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"leasehold.dev/protos/errs"
)

func TestParseKey(t *testing.T) {
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block := func(key any) string {
		der, err := x509.MarshalPKIXPublicKey(key)
		if err != nil {
			t.Fatal(err)
		}
		return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	}
	raw := base64.StdEncoding.EncodeToString(public)
	for _, tt := range []struct {
		name, file string
		ok         bool
	}{
		{"PEM", block(public), true},
		{"base64", raw, true},
		{"base64 with a line's end", raw + "\n", true},
		{"nothing", "", false},
		{"31 bytes", base64.StdEncoding.EncodeToString(public[1:]), false},
		{"another kind of key", block(other.Public()), false},
		{"PEM of rubbish", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			key, err := ParseKey([]byte(tt.file))
			if (err == nil) != tt.ok || err == nil && !key.Equal(public) || err != nil && errs.KindOf(err) != errs.Invalid {
				t.Errorf("ParseKey = %x, %v, want ok %v", key, err, tt.ok)
			}
		})
	}
}

func FuzzParseKey(f *testing.F) {
	f.Add([]byte("-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA\n-----END PUBLIC KEY-----\n"))
	f.Add([]byte("AAAA"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if key, err := ParseKey(b); err == nil && len(key) != ed25519.PublicKeySize {
			t.Errorf("a key of %d bytes", len(key))
		}
	})
}

func TestFlagsAreRefusedByName(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	needed := []string{"-model", "none.gguf", "-broker-dir", "d", "-admission-key", key}
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"nothing", nil, "-model, -broker-dir and -admission-key are needed"},
		{"a negative promise", append(needed, "-promise", "-1"), "-promise is -1"},
		{"no chunk", append(needed, "-chunk", "0"), "-chunk is 0"},
		{"no sequence", append(needed, "-sequences", "0"), "-sequences is 0"},
		{"no queue", append(needed, "-queue", "0"), "-queue is 0"},
		{"a key file that is not there", []string{"-model", "m", "-broker-dir", "d", "-admission-key", "/nowhere"}, "-admission-key: "},
		{"a key file that holds no key", needed, "admission key: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var c Config
			fs := flag.NewFlagSet("worker", flag.ContinueOnError)
			fs.SetOutput(io.Discard)
			c.Flags(fs)
			if err := fs.Parse(tt.args); err != nil {
				t.Fatal(err)
			}
			_, err := c.open()
			if err == nil || errs.KindOf(err) != errs.Invalid || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("open = %v, want invalid: %s...", err, tt.want)
			}
		})
	}
}

// The defaults are limits that a planner can work with.
func TestDefaultsWork(t *testing.T) {
	var c Config
	fs := flag.NewFlagSet("worker", flag.ContinueOnError)
	c.Flags(fs)
	if l := c.limits(); l.StepTokens <= l.Sequences || l.TenantRequests*2 > l.QueueRequests {
		t.Errorf("limits are %+v", l)
	}
}
