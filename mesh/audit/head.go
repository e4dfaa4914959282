package audit

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"leasehold.dev/protos/errs"
)

// headBody is what is signed of a head, in the order of its members.
type headBody struct {
	Service  string    `json:"service"`
	Instance string    `json:"instance"`
	Seq      uint64    `json:"seq"`
	Hash     Hash      `json:"hash"`
	Time     time.Time `json:"time"`
	Key      string    `json:"key"` // KeyID of the signer
}

// Head says that a process's log had this record as its newest. It may be kept by anybody, in JSON as it is here.
type Head struct {
	headBody
	Sig []byte `json:"sig"` // Ed25519
}

const headDomain = "leasehold-audit-head-v1\n"

// KeyID names a key: the first 16 hex digits of its SHA-256.
func KeyID(key ed25519.PublicKey) string {
	h := sha256.Sum256(key)
	return hex.EncodeToString(h[:8])
}

func signed(b headBody) ([]byte, error) {
	text, err := json.Marshal(b)
	return append([]byte(headDomain), text...), err
}

func sign(key ed25519.PrivateKey, b headBody) (Head, error) {
	b.Time = b.Time.UTC()
	b.Key = KeyID(key.Public().(ed25519.PublicKey))
	text, err := signed(b)
	if err != nil {
		return Head{}, errs.New(errs.Internal, "audit: head: %w", err)
	}
	return Head{b, ed25519.Sign(key, text)}, nil
}

// Check is Corrupt unless one of keys signed h.
func (h *Head) Check(keys ...ed25519.PublicKey) error {
	text, err := signed(h.headBody)
	if err != nil {
		return errs.New(errs.Corrupt, "audit: head: %w", err)
	}
	for _, k := range keys {
		if KeyID(k) != h.Key {
			continue
		}
		if !ed25519.Verify(k, text, h.Sig) {
			return errs.New(errs.Corrupt, "audit: the signature of the head of record %d does not fit", h.Seq)
		}
		return nil
	}
	return errs.New(errs.Corrupt, "audit: the head of record %d is signed by key %q, which is none of %d given", h.Seq, h.Key, len(keys))
}

// ParseHead reads a head in the form that a log writes; any other spelling is Corrupt. Its signature is for Check.
func ParseHead(line []byte) (Head, error) {
	var h Head
	if err := strict(line, &h); err != nil {
		return h, errs.New(errs.Corrupt, "audit: head: %w", err)
	}
	if again, err := json.Marshal(h); err != nil || !bytes.Equal(again, line) || h.Seq == 0 {
		return h, errs.New(errs.Corrupt, "audit: the head is not spelt as a log writes it")
	}
	return h, nil
}
