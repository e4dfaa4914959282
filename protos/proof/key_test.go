package proof

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"

	"leasehold.dev/protos/errs"
)

func TestParsePublicKey(t *testing.T) {
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
			key, err := ParsePublicKey([]byte(tt.file))
			if (err == nil) != tt.ok || err == nil && !key.Equal(public) || err != nil && errs.KindOf(err) != errs.Invalid {
				t.Errorf("ParsePublicKey = %x, %v, want ok %v", key, err, tt.ok)
			}
		})
	}
}

func TestReadKeys(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	pkix, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pub := write("pub", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: pkix}))
	key := write("key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}))
	if got, err := ReadPublicKey(pub); err != nil || !got.Equal(public) {
		t.Errorf("ReadPublicKey = %x, %v", got, err)
	}
	if got, err := ReadPrivateKey(key); err != nil || !got.Equal(private) {
		t.Errorf("ReadPrivateKey: equal %v, %v", got.Equal(private), err)
	}
	for name, path := range map[string]string{"absent": filepath.Join(dir, "none"), "empty": write("empty", nil), "the public one": pub} {
		if _, err := ReadPrivateKey(path); errs.KindOf(err) != errs.Invalid {
			t.Errorf("ReadPrivateKey of a file that is %s = %v, want invalid", name, err)
		}
	}
	if _, err := ReadPublicKey(key); errs.KindOf(err) != errs.Invalid {
		t.Errorf("ReadPublicKey of a private key = %v, want invalid", err)
	}
}

func FuzzParsePublicKey(f *testing.F) {
	f.Add([]byte("-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA\n-----END PUBLIC KEY-----\n"))
	f.Add([]byte("AAAA"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if key, err := ParsePublicKey(b); err == nil && len(key) != ed25519.PublicKeySize {
			t.Errorf("a key of %d bytes", len(key))
		}
	})
}
