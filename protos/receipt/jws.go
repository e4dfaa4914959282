package receipt

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"

	"github.com/go-jose/go-jose/v4"

	"leasehold.dev/protos/errs"
)

const typ = "leasehold-receipt+jws"

// MaxKeys bounds a key set.
const MaxKeys = 64

// KeyID names a public key: its RFC 7638 thumbprint (SHA-256, base64url).
func KeyID(key ed25519.PublicKey) (string, error) {
	if len(key) != ed25519.PublicKeySize {
		return "", errs.New(errs.Invalid, "receipt key: %d bytes, want %d", len(key), ed25519.PublicKeySize)
	}
	b, err := (&jose.JSONWebKey{Key: key}).Thumbprint(crypto.SHA256)
	if err != nil {
		return "", errs.New(errs.Internal, "receipt key: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(b), nil
}

// Signer signs receipts with one key. It is safe for concurrent use.
type Signer struct{ jws jose.Signer }

// NewSigner is Invalid when key is none.
func NewSigner(key ed25519.PrivateKey) (*Signer, error) {
	if len(key) != ed25519.PrivateKeySize {
		return nil, errs.New(errs.Invalid, "receipt key: private key of %d bytes, want %d", len(key), ed25519.PrivateKeySize)
	}
	kid, err := KeyID(key.Public().(ed25519.PublicKey))
	if err != nil {
		return nil, err
	}
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: jose.JSONWebKey{Key: key, KeyID: kid}}, (&jose.SignerOptions{}).WithType(typ))
	if err != nil {
		return nil, errs.New(errs.Internal, "receipt key: %w", err)
	}
	return &Signer{s}, nil
}

// Sign is the compact JWS of c, or Invalid when c is not whole.
func (s *Signer) Sign(c *Claims) (string, error) {
	if err := c.Check(); err != nil {
		return "", err
	}
	b, err := c.encode()
	if err != nil {
		return "", errs.New(errs.Internal, "receipt: %w", err)
	}
	jws, err := s.jws.Sign(b)
	if err != nil {
		return "", errs.New(errs.Internal, "receipt: %w", err)
	}
	out, err := jws.CompactSerialize()
	if err != nil {
		return "", errs.New(errs.Internal, "receipt: %w", err)
	}
	if len(out) > MaxJWS {
		return "", errs.New(errs.Invalid, "receipt: %d bytes, at most %d", len(out), MaxJWS)
	}
	return out, nil
}

// Keys are public keys by their ids.
type Keys map[string]ed25519.PublicKey

// NewKeys makes a set of keys.
func NewKeys(keys ...ed25519.PublicKey) (Keys, error) {
	out := Keys{}
	for _, k := range keys {
		kid, err := KeyID(k)
		if err != nil {
			return nil, err
		}
		out[kid] = k
	}
	return out, nil
}

// ParseKeys reads a JWKS (RFC 7517): 1 to [MaxKeys] Ed25519 public keys, each with the id that it must have.
func ParseKeys(jwks []byte) (Keys, error) {
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(jwks, &set); err != nil {
		return nil, errs.New(errs.Invalid, "receipt keys: %d bytes are no JWKS: %w", len(jwks), err)
	}
	if len(set.Keys) == 0 || len(set.Keys) > MaxKeys {
		return nil, errs.New(errs.Invalid, "receipt keys: %d keys, want 1 to %d", len(set.Keys), MaxKeys)
	}
	out := Keys{}
	for i, k := range set.Keys {
		pub, ok := k.Key.(ed25519.PublicKey)
		if !ok {
			return nil, errs.New(errs.Invalid, "receipt keys: key %d is a %T, want an Ed25519 public key", i, k.Key)
		}
		kid, err := KeyID(pub)
		if err != nil {
			return nil, err
		}
		if k.KeyID != kid {
			return nil, errs.New(errs.Invalid, "receipt keys: key %d is named by %d bytes that are not its thumbprint", i, len(k.KeyID))
		}
		out[kid] = pub
	}
	return out, nil
}

// Verify returns what a receipt claims: NotFound when its key is not in the set, Corrupt when the signature is wrong,
// Invalid for all else that a receipt must not be.
func (k Keys) Verify(jws string) (*Claims, error) {
	if len(jws) > MaxJWS {
		return nil, errs.New(errs.Invalid, "receipt: %d bytes, at most %d", len(jws), MaxJWS)
	}
	obj, err := jose.ParseSignedCompact(jws, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil {
		return nil, errs.New(errs.Invalid, "receipt: %d bytes are no compact JWS with EdDSA: %w", len(jws), err)
	}
	if len(obj.Signatures) != 1 {
		return nil, errs.New(errs.Invalid, "receipt: %d signatures, want 1", len(obj.Signatures))
	}
	h := obj.Signatures[0].Protected
	if t, _ := h.ExtraHeaders[jose.HeaderType].(string); t != typ || len(h.ExtraHeaders) != 1 || h.JSONWebKey != nil || h.Nonce != "" {
		return nil, errs.New(errs.Invalid, "receipt: a JWS of another type, or with more headers than alg, kid and typ")
	}
	key, ok := k[h.KeyID]
	if !ok {
		return nil, errs.New(errs.NotFound, "receipt: signed by a key that is none of the %d known ones", len(k))
	}
	payload, err := obj.Verify(key)
	if err != nil {
		return nil, errs.New(errs.Corrupt, "receipt: the signature is wrong")
	}
	return parse(payload)
}

// parse takes a payload only when it is the one encoding of whole claims: no field is missing, unknown or there twice.
func parse(payload []byte) (*Claims, error) {
	c := &Claims{}
	if err := json.Unmarshal(payload, c); err != nil {
		return nil, errs.New(errs.Invalid, "receipt: %d signed bytes are no claims: %w", len(payload), err)
	}
	again, err := c.encode()
	if err != nil || !bytes.Equal(again, payload) {
		return nil, errs.New(errs.Invalid, "receipt: the %d signed bytes are not what version %d writes: a field is missing, unknown or out of place",
			len(payload), Version)
	}
	if err := c.Check(); err != nil {
		return nil, err
	}
	return c, nil
}
