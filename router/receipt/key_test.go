package receipt_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"leasehold.dev/protos/errs"
	"leasehold.dev/router/receipt"
)

func TestTheKeyIsMadeOnceAndForItsOwnerAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key.pem")
	first, err := receipt.OpenRing(path)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", st.Mode(), err)
	}
	again, err := receipt.OpenRing(path)
	if err != nil || len(again.JWKS()) != 1 || again.JWKS()[0] != first.JWKS()[0] {
		t.Errorf("opened again: %v, %v; want %v", again.JWKS(), err, first.JWKS())
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestRoutersThatStartTogetherHaveOneKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key.pem")
	ids := make([]string, 8)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			r, err := receipt.OpenRing(path)
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = r.JWKS()[0].ID
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] || id == "" {
			t.Fatalf("keys %v", ids)
		}
	}
}

func TestReceiptsOfOldKeysStayGood(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key.pem")
	var jws []string
	var last string
	for i := range 4 {
		if i > 0 {
			if err := receipt.Rotate(path); err != nil {
				t.Fatal(err)
			}
		}
		r, err := receipt.OpenRing(path)
		if err != nil {
			t.Fatal(err)
		}
		one, err := r.Sign(claims())
		if err != nil {
			t.Fatal(err)
		}
		jws = append(jws, one)
		for j, s := range jws {
			if _, err := r.Keys.Verify(s); err != nil {
				t.Errorf("after %d rotations, the receipt of key %d: %v", i, j, err)
			}
		}
		if len(r.JWKS()) != i+1 || r.JWKS()[0].ID == last {
			t.Errorf("after %d rotations: %v", i, r.JWKS())
		}
		last = r.JWKS()[0].ID
	}
	b, err := os.ReadFile(path)
	if st, _ := os.Stat(path); err != nil || bytes.Count(b, []byte("BEGIN PRIVATE KEY")) != 1 || st.Mode().Perm() != 0o600 {
		t.Errorf("one private key is kept, for its owner: mode %v, %v", st.Mode(), err)
	}
}

func TestKeyFilesThatAreRefused(t *testing.T) {
	good := func() []byte {
		path := filepath.Join(t.TempDir(), "k")
		if _, err := receipt.OpenRing(path); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	pub, _, _ := ed25519.GenerateKey(nil)
	pkix, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		t.Fatal(err)
	}
	old := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: pkix}))
	for why, c := range map[string]struct {
		file []byte
		mode os.FileMode
		want string
	}{
		"empty":                 {nil, 0o600, "without a private key"},
		"public keys alone":     {[]byte(old), 0o600, "without a private key"},
		"two private keys":      {append(good(), good()...), 0o600, "two private keys"},
		"another kind of key":   {pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600, "want Ed25519"},
		"another kind of block": {pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600, "another type"},
		"a broken key":          {pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der[:9]}), 0o600, "receipt key"},
		"for the group":         {good(), 0o640, "0640"},
		"for all":               {good(), 0o604, "0604"},
		"too many old keys":     {append(good(), strings.Repeat(old, 64)...), 0o600, "65 keys"},
	} {
		path := filepath.Join(t.TempDir(), "k")
		if err := os.WriteFile(path, c.file, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		if _, err := receipt.OpenRing(path); errs.KindOf(err) != errs.Invalid || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want Invalid with %q", why, err, c.want)
		}
	}
	if err := receipt.Rotate(filepath.Join(t.TempDir(), "none")); errs.KindOf(err) != errs.Invalid {
		t.Errorf("no file to rotate: %v", err)
	}
}
