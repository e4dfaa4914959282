package audit

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/proof"
)

// Names in a log's directory.
const (
	keyFile    = "key.pem"
	PublicFile = "key.pub.pem" // what verifiers keep elsewhere
	headsFile  = "heads.jsonl"
	lockFile   = "lock"
)

// openKey reads the directory's key, or makes one where there is no log yet. A log without its key, and a key that
// others can read, are refused: heads would prove nothing.
func openKey(dir string, fresh bool) (ed25519.PrivateKey, error) {
	path := filepath.Join(dir, keyFile)
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && fresh:
		return makeKey(dir)
	case errors.Is(err, fs.ErrNotExist):
		return nil, errs.New(errs.Corrupt, "audit: %s has records but no %s: move it away, as evidence, and start a new one", dir, keyFile)
	case err != nil:
		return nil, errs.New(errs.Unavailable, "audit: %w", err)
	case st.Mode().Perm()&0o077 != 0:
		return nil, errs.New(errs.Denied, "audit: %s has mode %v, want 0600: others can sign heads with it", path, st.Mode().Perm())
	}
	key, err := proof.ReadPrivateKey(path)
	if err != nil {
		return nil, errs.New(errs.Corrupt, "audit: %s: %v", path, err) // not the kind of a wrong flag
	}
	return key, writePublic(dir, key)
}

func makeKey(dir string) (ed25519.PrivateKey, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, errs.New(errs.Internal, "audit: key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, errs.New(errs.Internal, "audit: key: %w", err)
	}
	if err := writePEM(filepath.Join(dir, keyFile), "PRIVATE KEY", der, 0o600); err != nil {
		return nil, err
	}
	return key, writePublic(dir, key)
}

// writePublic leaves a public key that is there: it is what verifiers hold the log against.
func writePublic(dir string, key ed25519.PrivateKey) error {
	path, pub := filepath.Join(dir, PublicFile), key.Public().(ed25519.PublicKey)
	old, err := os.ReadFile(path)
	if err == nil {
		have, err := proof.ParsePublicKey(old)
		if err != nil || !have.Equal(pub) {
			return errs.New(errs.Corrupt, "audit: %s is not the public half of %s", path, keyFile)
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return errs.New(errs.Unavailable, "audit: %w", err)
	}
	der, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		return errs.New(errs.Internal, "audit: key: %w", err)
	}
	return writePEM(path, "PUBLIC KEY", der, 0o644)
}

// writePEM makes a file whole or not at all.
func writePEM(path, kind string, der []byte, mode fs.FileMode) error {
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode)
	if err != nil {
		return errs.New(errs.Unavailable, "audit: %w", err)
	}
	err = errors.Join(pem.Encode(f, &pem.Block{Type: kind, Bytes: der}), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return errs.New(errs.Unavailable, "audit: %w", err)
	}
	return nil
}
