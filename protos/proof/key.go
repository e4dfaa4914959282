package proof

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"os"

	"leasehold.dev/protos/errs"
)

// ReadPublicKey reads the key that Admissions are checked with; see [ParsePublicKey].
func ReadPublicKey(path string) (ed25519.PublicKey, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, errs.New(errs.Invalid, "admission key: %w", err)
	}
	return ParsePublicKey(b)
}

// ParsePublicKey reads an Ed25519 public key: PKIX in PEM, or its 32 bytes in base64.
func ParsePublicKey(file []byte) (ed25519.PublicKey, error) {
	if block, _ := pem.Decode(file); block != nil {
		key, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, errs.New(errs.Invalid, "admission key: %w", err)
		}
		if k, ok := key.(ed25519.PublicKey); ok {
			return k, nil
		}
		return nil, errs.New(errs.Invalid, "admission key: a %T, want an Ed25519 public key", key)
	}
	raw, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(file)))
	if err != nil || len(raw) != ed25519.PublicKeySize {
		return nil, errs.New(errs.Invalid, "admission key: neither PEM nor %d bytes in base64", ed25519.PublicKeySize)
	}
	return raw, nil
}

// ReadPrivateKey reads the key that signs Admissions: Ed25519, PKCS #8 in PEM.
func ReadPrivateKey(path string) (ed25519.PrivateKey, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, errs.New(errs.Invalid, "admission key: %w", err)
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return nil, errs.New(errs.Invalid, "admission key: %s is no PEM file", path)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errs.New(errs.Invalid, "admission key: no PKCS #8 private key: %w", err)
	}
	if k, ok := key.(ed25519.PrivateKey); ok {
		return k, nil
	}
	return nil, errs.New(errs.Invalid, "admission key: a %T, want an Ed25519 private key", key)
}
