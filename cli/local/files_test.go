package local

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"leasehold.dev/mesh/identity"
	"leasehold.dev/router/keys"
)

func TestFilesOfARun(t *testing.T) {
	c := Default()
	c.Dir = filepath.Join(t.TempDir(), "mesh")
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	m := &Mesh{Config: c}
	f, err := m.writeFiles()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(f.keys)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Keys []struct{ Tenant, SHA256 string }
	}
	if err := json.Unmarshal(b, &doc); err != nil || len(doc.Keys) != 1 {
		t.Fatalf("%s: %v", b, err)
	}
	key := c.Tenants["demo"]
	if h := sha256.Sum256([]byte(key)); doc.Keys[0].Tenant != "demo" || doc.Keys[0].SHA256 != hex.EncodeToString(h[:]) {
		t.Errorf("keys.json = %s", b)
	}
	id, err := identity.Load(f.identity("decode", "decode-0"))
	if err != nil {
		t.Fatal(err)
	}
	if service, name := id.Name(); service != "decode" || name != "decode-0" {
		t.Errorf("identity of %s/%s", service, name)
	}
	checkModes(t, c.Dir, key)
}

// checkModes wants secrets for the owner only, and the key nowhere in clear.
func checkModes(t *testing.T, dir, key string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		secret := strings.Contains(path, "key") || strings.Contains(path, "admission")
		if secret && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, want 0600", path, info.Mode())
		}
		b, err := os.ReadFile(path)
		if strings.Contains(string(b), key) {
			t.Errorf("%s holds the key in clear", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestNewKeysDiffer(t *testing.T) {
	if a, b := NewKey(), NewKey(); a == b || len(a) != len("lh-")+32 {
		t.Errorf("keys %s and %s", a, b)
	}
}

func TestTheCanaryIsMarkedInTheKeys(t *testing.T) {
	f := &files{keys: filepath.Join(t.TempDir(), "keys.json")}
	tenants := map[string]string{"demo": "lh-demo"}
	if err := f.tenants(tenants, "lh-canary"); err != nil {
		t.Fatal(err)
	}
	if len(tenants) != 1 {
		t.Error("the caller's tenants have changed")
	}
	ring, err := keys.Open(f.keys)
	if err != nil {
		t.Fatal(err)
	}
	for key, canary := range map[string]bool{"lh-demo": false, "lh-canary": true} {
		if who := ring.Authenticate("Bearer " + key); who == nil || who.Canary != canary {
			t.Errorf("%s is %+v, want a canary: %v", key, who, canary)
		}
	}
}
