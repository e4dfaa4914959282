package local

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"leasehold.dev/mesh/identity"
)

// files is what the processes of one run are given: certificates, the admission key pair, the tenants' keys.
type files struct {
	dir        string
	keys       string
	publicKey  string
	privateKey string
}

func (f *files) identity(service, id string) string {
	return filepath.Join(f.dir, "identity", service+"-"+id)
}

func (m *Mesh) writeFiles() (*files, error) {
	f := &files{
		dir:        m.Dir,
		keys:       filepath.Join(m.Dir, "keys.json"),
		publicKey:  filepath.Join(m.Dir, "admission.pub.pem"),
		privateKey: filepath.Join(m.Dir, "admission.key.pem"),
	}
	return f, errors.Join(m.issue(f), f.admissionKeys(), f.tenants(m.Tenants, m.Canary), m.socketDirs())
}

func (m *Mesh) issue(f *files) error {
	dir := filepath.Join(m.Dir, "identity", "ca")
	ca, err := identity.OpenCA(dir)
	if errors.Is(err, os.ErrNotExist) {
		ca, err = identity.NewCA(dir)
	}
	if err != nil {
		return fmt.Errorf("local: %w", err)
	}
	who := [][2]string{{"cli", "cli"}, {"registry", "registry"}, {"router", "router-0"}}
	for _, b := range m.Brokers {
		who = append(who, [2]string{"kvbroker", b.Name})
	}
	for _, w := range m.Prefills {
		who = append(who, [2]string{"prefill", w.ID})
	}
	for _, w := range m.Decodes {
		who = append(who, [2]string{"decode", w.ID})
	}
	for _, w := range who {
		if err := ca.Issue(f.identity(w[0], w[1]), w[0], w[1]); err != nil {
			return fmt.Errorf("local: certificate of %s/%s: %w", w[0], w[1], err)
		}
	}
	return nil
}

func (m *Mesh) socketDirs() error {
	var all []error
	for _, b := range m.Brokers {
		all = append(all, os.MkdirAll(m.BrokerDir(b.Name), 0o700))
	}
	return errors.Join(all...)
}

func (f *files) admissionKeys() error {
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return fmt.Errorf("local: admission key: %w", err)
	}
	pkix, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		return fmt.Errorf("local: admission key: %w", err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("local: admission key: %w", err)
	}
	return errors.Join(
		os.WriteFile(f.publicKey, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: pkix}), 0o600),
		os.WriteFile(f.privateKey, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), 0o600))
}

// canaryTenant is the one that may name the pair of workers.
const canaryTenant = "canary"

// tenants writes the keys as hashes: the router never sees a key at rest.
func (f *files) tenants(keys map[string]string, canary string) error {
	type entry struct {
		Tenant string `json:"tenant"`
		SHA256 string `json:"sha256"`
	}
	type marks struct {
		Canary bool `json:"canary"`
	}
	var doc struct {
		Keys    []entry          `json:"keys"`
		Tenants map[string]marks `json:"tenants,omitempty"`
	}
	if canary != "" {
		keys = maps.Clone(keys)
		keys[canaryTenant] = canary
		doc.Tenants = map[string]marks{canaryTenant: {Canary: true}}
	}
	for tenant, key := range keys {
		h := sha256.Sum256([]byte(key))
		doc.Keys = append(doc.Keys, entry{tenant, hex.EncodeToString(h[:])})
	}
	b, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return fmt.Errorf("local: tenants: %w", err)
	}
	return os.WriteFile(f.keys, b, 0o600)
}
