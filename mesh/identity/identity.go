package identity

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"sync"
	"time"

	"leasehold.dev/protos/errs"
)

// The files of an identity.
const (
	CAFile   = "ca.pem"
	CertFile = "cert.pem"
	KeyFile  = "key.pem"
)

var files = [...]string{CAFile, CertFile, KeyFile}

// Identity is this process's certificate and the roots it trusts. It is safe for concurrent use.
type Identity struct {
	dir string // empty: plain

	mu   sync.Mutex
	seen [len(files)]stamp
	now  *material
	err  error // of the last look at the files; now is from an earlier one
}

type stamp struct {
	mod  time.Time
	size int64
}

// material is one consistent reading of the three files; it is never changed.
type material struct {
	cert        *tls.Certificate
	roots       *x509.CertPool
	service, id string
}

// Load reads ca.pem, cert.pem and key.pem from dir, and reads them again when they change.
func Load(dir string) (*Identity, error) {
	i := &Identity{dir: dir}
	if dir == "" {
		return nil, errs.New(errs.Invalid, "identity: no directory given")
	}
	if _, err := i.current(); err != nil {
		return nil, err
	}
	return i, nil
}

// Plain is the identity of a run without TLS: its credentials speak plain text, and only over loopback.
func Plain() *Identity { return &Identity{} }

// Name is the service and instance that the certificate is for; empty for [Plain].
func (i *Identity) Name() (service, id string) {
	if i.dir == "" {
		return "", ""
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.now.service, i.now.id
}

// Check looks at the files again. It returns an error if they do not fit together or the certificate in use is not valid
// at this time: the process then serves on with what it has, but should not be given new work.
func (i *Identity) Check() error {
	if i.dir == "" {
		return nil
	}
	m, err := i.current()
	if err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.err != nil {
		return i.err
	}
	now, leaf := time.Now(), m.cert.Leaf
	if now.Before(leaf.NotBefore) || now.After(leaf.NotAfter) {
		return errs.New(errs.Unavailable, "identity: certificate is valid from %s to %s, and it is %s",
			leaf.NotBefore.Format(time.RFC3339), leaf.NotAfter.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return nil
}

// current is the newest consistent material. Its only error is that there never was any.
func (i *Identity) current() (*material, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	var at [len(files)]stamp
	for n, f := range files {
		st, err := os.Stat(filepath.Join(i.dir, f))
		if err != nil {
			return i.keep(errs.New(errs.Invalid, "identity: %w", err))
		}
		at[n] = stamp{st.ModTime(), st.Size()}
	}
	if i.now != nil && i.err == nil && at == i.seen {
		return i.now, nil
	}
	m, err := read(i.dir)
	if err != nil {
		return i.keep(err)
	}
	if i.now != nil && (m.service != i.now.service || m.id != i.now.id) {
		return i.keep(errs.New(errs.Invalid, "identity: %s is now for %s/%s, this process is %s/%s", CertFile,
			m.service, m.id, i.now.service, i.now.id))
	}
	i.now, i.seen, i.err = m, at, nil
	return m, nil
}

func (i *Identity) keep(err error) (*material, error) {
	if i.now == nil {
		return nil, err
	}
	i.err = err
	return i.now, nil
}

func read(dir string) (*material, error) {
	ca, err := os.ReadFile(filepath.Join(dir, CAFile))
	if err != nil {
		return nil, errs.New(errs.Invalid, "identity: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, errs.New(errs.Invalid, "identity: %s has no certificate", CAFile)
	}
	cert, err := tls.LoadX509KeyPair(filepath.Join(dir, CertFile), filepath.Join(dir, KeyFile))
	if err != nil {
		return nil, errs.New(errs.Invalid, "identity: %s and %s: %w", CertFile, KeyFile, err)
	}
	service, id, err := parse(cert.Leaf)
	if err != nil {
		return nil, errs.New(errs.Invalid, "identity: %s: %v", CertFile, err)
	}
	return &material{cert: &cert, roots: roots, service: service, id: id}, nil
}
