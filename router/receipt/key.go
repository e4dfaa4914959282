package receipt

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/receipt"
)

const (
	blockPrivate = "PRIVATE KEY" // PKCS #8; the first one signs
	blockPublic  = "PUBLIC KEY"  // PKIX; of keys that signed before
)

// Ring is the key that signs, and all whose receipts are still good.
type Ring struct {
	*receipt.Signer
	Keys   receipt.Keys
	public []ed25519.PublicKey // the one that signs first
}

// OpenRing reads the key file at path: PEM, one private key and the public keys of earlier ones. When there is none it is
// made, readable by its owner alone. One that others may read is refused, since whoever reads it can make receipts.
func OpenRing(path string) (*Ring, error) {
	err := create(path)
	if err != nil {
		return nil, err
	}
	st, err := os.Stat(path)
	if err != nil {
		return nil, errs.New(errs.Invalid, "receipt key: %w", err)
	}
	if m := st.Mode().Perm(); m&0o077 != 0 {
		return nil, errs.New(errs.Invalid, "receipt key: %s has mode %04o, others may have no access (0600)", path, m)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, errs.New(errs.Invalid, "receipt key: %w", err)
	}
	key, old, err := parse(b)
	if err != nil {
		return nil, err
	}
	r := &Ring{public: append([]ed25519.PublicKey{key.Public().(ed25519.PublicKey)}, old...)}
	if len(r.public) > receipt.MaxKeys {
		return nil, errs.New(errs.Invalid, "receipt key: %d keys, at most %d: leave out public keys whose receipts nobody asks for", len(r.public), receipt.MaxKeys)
	}
	if r.Keys, err = receipt.NewKeys(r.public...); err != nil {
		return nil, err
	}
	r.Signer, err = receipt.NewSigner(key)
	return r, err
}

// Rotate puts a new key into the file at path. The one before stays as a public key, so that its receipts verify. A
// running router goes on with the old one until it starts again.
func Rotate(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return errs.New(errs.Invalid, "receipt key: %w", err)
	}
	key, old, err := parse(b)
	if err != nil {
		return err
	}
	next, err := encode(append([]ed25519.PublicKey{key.Public().(ed25519.PublicKey)}, old...))
	if err != nil {
		return err
	}
	return replace(path, next)
}

// JWK is one key as JSON has it.
type JWK struct{ ID, X string }

// JWKS are the public keys, the one that signs first.
func (r *Ring) JWKS() []JWK {
	out := make([]JWK, 0, len(r.public))
	for _, k := range r.public {
		id, err := receipt.KeyID(k)
		if err != nil { // NewKeys has named each of them
			continue
		}
		out = append(out, JWK{id, base64.RawURLEncoding.EncodeToString(k)})
	}
	return out
}

// create makes the file unless it is there. Two routers that start at once agree on one of the two keys.
func create(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil // what else is wrong is found by who reads it
	}
	b, err := encode(nil)
	if err != nil {
		return err
	}
	tmp, err := write(path, b)
	if err != nil {
		return errs.New(errs.Invalid, "receipt key: %s", err.Error()) // a folder that is not there is the operator's mistake
	}
	defer func() { _ = os.Remove(tmp) }() // a second name of the file by now
	if err := os.Link(tmp, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return errs.New(errs.Invalid, "receipt key: %w", err)
	}
	return nil
}

func replace(path string, b []byte) error {
	tmp, err := write(path, b)
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return errs.New(errs.Internal, "%w", err)
	}
	return nil
}

// write is b in a new file beside path, on the disk.
func write(path string, b []byte) (string, error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // 0600
	if err != nil {
		return "", errs.New(errs.Internal, "%w", err)
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return "", errs.New(errs.Internal, "%w", errors.Join(err, os.Remove(f.Name())))
	}
	return f.Name(), nil
}

// encode is a key file with a new key and old public ones.
func encode(old []ed25519.PublicKey) ([]byte, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, errs.New(errs.Internal, "receipt key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, errs.New(errs.Internal, "receipt key: %w", err)
	}
	out := pem.EncodeToMemory(&pem.Block{Type: blockPrivate, Bytes: der})
	for _, k := range old {
		if der, err = x509.MarshalPKIXPublicKey(k); err != nil {
			return nil, errs.New(errs.Internal, "receipt key: %w", err)
		}
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: blockPublic, Bytes: der})...)
	}
	return out, nil
}

func parse(file []byte) (ed25519.PrivateKey, []ed25519.PublicKey, error) {
	var key ed25519.PrivateKey
	var old []ed25519.PublicKey
	for block, rest := pem.Decode(file); block != nil; block, rest = pem.Decode(rest) {
		var any any
		var err error
		switch block.Type {
		case blockPrivate:
			any, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		case blockPublic:
			any, err = x509.ParsePKIXPublicKey(block.Bytes)
		default:
			return nil, nil, errs.New(errs.Invalid, "receipt key: a PEM block of another type than %s and %s", blockPrivate, blockPublic)
		}
		if err != nil {
			return nil, nil, errs.New(errs.Invalid, "receipt key: %w", err)
		}
		switch k := any.(type) {
		case ed25519.PrivateKey:
			if key != nil {
				return nil, nil, errs.New(errs.Invalid, "receipt key: two private keys, want one")
			}
			key = k
		case ed25519.PublicKey:
			old = append(old, k)
		default:
			return nil, nil, errs.New(errs.Invalid, "receipt key: a %T, want Ed25519", any)
		}
	}
	if key == nil {
		return nil, nil, errs.New(errs.Invalid, "receipt key: %d bytes without a private key in PEM", len(file))
	}
	return key, old, nil
}
