package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"leasehold.dev/mesh/name"
	"leasehold.dev/protos/errs"
)

// CAKeyFile is the CA's private key, beside [CAFile] in the CA's own directory only.
const CAKeyFile = "ca-key.pem"

const (
	caLife   = 5 * 365 * 24 * time.Hour
	leafLife = 90 * 24 * time.Hour
	skew     = 5 * time.Minute // between the clocks of two hosts
)

// CA signs the certificates of a mesh.
type CA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// NewCA makes a CA in dir: ca.pem and ca-key.pem. It does not replace one: that would cut off whoever trusts it.
func NewCA(dir string) (*CA, error) {
	if _, err := os.Stat(filepath.Join(dir, CAKeyFile)); err == nil {
		return nil, errs.New(errs.Invalid, "identity: %s has a CA already", dir)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, errs.New(errs.Internal, "identity: %w", err)
	}
	now := time.Now()
	t := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "leasehold CA"},
		NotBefore: now.Add(-skew), NotAfter: now.Add(caLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, errs.New(errs.Internal, "identity: %w", err)
	}
	if err := writeAll(dir, []file{{CAKeyFile, keyPEM(key)}, {CAFile, certPEM(der)}}); err != nil {
		return nil, err
	}
	return OpenCA(dir)
}

// OpenCA reads the CA that [NewCA] made in dir.
func OpenCA(dir string) (*CA, error) {
	certFile := filepath.Join(dir, CAFile)
	pair, err := tls.LoadX509KeyPair(certFile, filepath.Join(dir, CAKeyFile))
	if err != nil {
		return nil, errs.New(errs.Invalid, "identity: CA: %w", err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || !pair.Leaf.IsCA {
		return nil, errs.New(errs.Invalid, "identity: %s is not an ECDSA CA", certFile)
	}
	return &CA{cert: pair.Leaf, key: key, pem: certPEM(pair.Leaf.Raw)}, nil
}

// Issue writes ca.pem, cert.pem and key.pem for spiffe://leasehold/service/id into dir. It may be called again, under a
// running process, to renew.
func (c *CA) Issue(dir, service, id string) error {
	if err := name.Check("service", service); err != nil {
		return err
	}
	if err := name.Check("id", id); err != nil {
		return err
	}
	now := time.Now()
	return c.issue(dir, x509.Certificate{
		Subject: pkix.Name{CommonName: service + "/" + id}, URIs: []*url.URL{spiffe(service, id)},
		NotBefore: now.Add(-skew), NotAfter: now.Add(leafLife),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	})
}

func (c *CA) issue(dir string, t x509.Certificate) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return errs.New(errs.Internal, "identity: %w", err)
	}
	t.SerialNumber = serial()
	der, err := x509.CreateCertificate(rand.Reader, &t, c.cert, key.Public(), c.key)
	if err != nil {
		return errs.New(errs.Internal, "identity: %w", err)
	}
	return writeAll(dir, []file{{CAFile, c.pem}, {KeyFile, keyPEM(key)}, {CertFile, certPEM(der)}})
}

func serial() *big.Int {
	b := make([]byte, 16)
	rand.Read(b)
	return new(big.Int).SetBytes(b)
}

func certPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func keyPEM(k *ecdsa.PrivateKey) []byte {
	der, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		return nil // P-256 always marshals; an empty file would be refused by every reader
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

type file struct {
	name string
	data []byte
}

// writeAll replaces each file as a whole, so that a reader never sees a part of one.
func writeAll(dir string, fs []file) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return errs.New(errs.Invalid, "identity: %w", err)
	}
	for _, f := range fs {
		to := filepath.Join(dir, f.name)
		if err := os.WriteFile(to+".new", f.data, 0o600); err != nil {
			return errs.New(errs.Unavailable, "identity: %w", err)
		}
		if err := os.Rename(to+".new", to); err != nil {
			return errs.New(errs.Unavailable, "identity: %w", err)
		}
	}
	return nil
}
