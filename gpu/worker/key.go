package worker

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"

	"leasehold.dev/protos/errs"
)

// ParseKey reads an Ed25519 public key: PEM (PUBLIC KEY), or the 32 bytes in base64.
func ParseKey(file []byte) (ed25519.PublicKey, error) {
	if block, _ := pem.Decode(file); block != nil {
		key, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, errs.New(errs.Invalid, "admission key: %w", err)
		}
		if k, ok := key.(ed25519.PublicKey); ok {
			return k, nil
		}
		return nil, errs.New(errs.Invalid, "admission key: a %T, want Ed25519", key)
	}
	raw, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(file)))
	if err != nil || len(raw) != ed25519.PublicKeySize {
		return nil, errs.New(errs.Invalid, "admission key: neither PEM nor %d bytes in base64", ed25519.PublicKeySize)
	}
	return raw, nil
}
