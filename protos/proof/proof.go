// Package proof makes and checks what binds a request together: the prompt digest, the signed Admission, and the root
// and MAC of a Completion.
//
// A page digest (package pagesum) finds faults; what this package makes also finds a wrong order, count or identity.
package proof

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"google.golang.org/protobuf/proto"

	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/fault"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/pagesum"
)

// Sizes in bytes.
const (
	IDSize     = 16
	SecretSize = 32
	DigestSize = pagesum.Size // of a page
)

const admissionContext = "leasehold/admission/v1"

// NewID returns 16 random bytes.
func NewID() []byte { return random(IDSize) }

// NewSecret returns the 32 random bytes of one transfer.
func NewSecret() []byte { return random(SecretSize) }

func random(n int) []byte {
	b := make([]byte, n)
	rand.Read(b) // never fails: crypto/rand ends the process instead
	return b
}

// PromptDigest is SHA-256 over the length-framed (nonce, tenant, model revision, ids). A frame is a 64-bit little
// endian length and the bytes; ids are int32 little endian.
func PromptDigest(nonce []byte, tenant string, revision []byte, ids []int32) []byte {
	h := sha256.New()
	frame := func(b []byte) {
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	frame(nonce)
	frame([]byte(tenant))
	frame(revision)
	b := make([]byte, 0, 4*len(ids))
	for _, id := range ids {
		b = binary.LittleEndian.AppendUint32(b, uint32(id))
	}
	frame(b)
	return h.Sum(nil)
}

// Pages that hold rows [from, n-1): ceil((n-1)/64) - from/64; 0 when there is no such row.
func Pages(n, from uint32) uint32 {
	if n == 0 || from >= n-1 {
		return 0
	}
	return (n-2)/pagesum.PageTokens + 1 - from/pagesum.PageTokens
}

// Sign makes the ticket of a.
func Sign(key ed25519.PrivateKey, a *meshv1.Admission) (*meshv1.SignedAdmission, error) {
	if len(key) != ed25519.PrivateKeySize {
		return nil, errs.New(errs.Internal, "sign admission: private key has %d bytes, want %d", len(key), ed25519.PrivateKeySize)
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(a)
	if err != nil {
		return nil, fmt.Errorf("sign admission: %w", err)
	}
	return &meshv1.SignedAdmission{Admission: b, Signature: ed25519.Sign(key, append([]byte(admissionContext), b...))}, nil
}

// Verify checks a ticket's signature and shape, and returns the Admission: Corrupt when the signature is wrong, Invalid
// when a field is missing. It is for those to whom the ticket comes without token ids.
func Verify(key ed25519.PublicKey, s *meshv1.SignedAdmission) (*meshv1.Admission, error) {
	if len(key) != ed25519.PublicKeySize {
		return nil, errs.New(errs.Internal, "admission: public key has %d bytes, want %d", len(key), ed25519.PublicKeySize)
	}
	if len(key) != ed25519.PublicKeySize || len(s.GetSignature()) != ed25519.SignatureSize ||
		!ed25519.Verify(key, append([]byte(admissionContext), s.GetAdmission()...), s.GetSignature()) {
		return nil, errs.New(errs.Corrupt, "admission: signature is wrong")
	}
	a := &meshv1.Admission{}
	if err := proto.Unmarshal(s.Admission, a); err != nil {
		return nil, errs.New(errs.Invalid, "admission: %w", err)
	}
	if err := shape(a); err != nil {
		return nil, err
	}
	return a, nil
}

// Open is Verify, and ids are the token ids presented with the ticket: their digest must be the Admission's, else the
// error is Corrupt.
func Open(key ed25519.PublicKey, s *meshv1.SignedAdmission, ids []int32) (*meshv1.Admission, error) {
	a, err := Verify(key, s)
	if err != nil {
		return nil, err
	}
	if uint64(len(ids)) != uint64(a.PromptTokens) && !fault.Off(fault.Counts) {
		return nil, errs.New(errs.Corrupt, "admission: %d token ids presented, %d admitted", len(ids), a.PromptTokens)
	}
	if !hmac.Equal(PromptDigest(a.Nonce, a.Tenant, a.ModelRevision, ids), a.PromptDigest) && !fault.Off(fault.PromptDigest) {
		return nil, errs.New(errs.Corrupt, "admission: prompt digest differs")
	}
	return a, nil
}

func shape(a *meshv1.Admission) error {
	_, known := meshv1.Mover_name[int32(a.Mover)]
	split := known && a.Mover > meshv1.Mover_MOVER_NONE
	switch {
	case len(a.Id) != IDSize || len(a.Nonce) != IDSize:
		return errs.New(errs.Invalid, "admission: id has %d bytes and nonce %d, want %d", len(a.Id), len(a.Nonce), IDSize)
	case len(a.ModelRevision) != sha256.Size || len(a.PromptDigest) != sha256.Size:
		return errs.New(errs.Invalid, "admission: model revision has %d bytes and prompt digest %d, want %d",
			len(a.ModelRevision), len(a.PromptDigest), sha256.Size)
	case a.Tenant == "" || a.Decode == "" || a.DecodeBroker == "":
		return errs.New(errs.Invalid, "admission: tenant, decode or decode broker is missing")
	case a.PromptTokens == 0 || a.MaxNewTokens == 0:
		return errs.New(errs.Invalid, "admission: %d prompt tokens, %d new tokens", a.PromptTokens, a.MaxNewTokens)
	case !split && a.Mover != meshv1.Mover_MOVER_NONE:
		return errs.New(errs.Invalid, "admission: mover %v", a.Mover)
	case split != (a.Prefill != "") || split != (a.PrefillBroker != ""):
		return errs.New(errs.Invalid, "admission: mover %v with prefill %q at broker %q", a.Mover, a.Prefill, a.PrefillBroker)
	case a.DeadlineUnixMs <= 0:
		return errs.New(errs.Invalid, "admission: no deadline")
	}
	return nil
}

// LeaseHash is how a lease is named outside the pair that holds it: SHA-256 of its id.
func LeaseHash(lease []byte) []byte {
	h := sha256.Sum256(lease)
	return h[:]
}

// Root is HMAC-SHA-256(secret, "leasehold/root/v1" || ordered digests); digests have DigestSize bytes each.
func Root(secret []byte, digests [][]byte) []byte {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte("leasehold/root/v1"))
	for _, d := range digests {
		m.Write(d)
	}
	return m.Sum(nil)
}

// Seal fills c's root and MAC.
func Seal(secret []byte, c *brokerv1.Completion) error {
	if len(secret) != SecretSize {
		return errs.New(errs.Internal, "seal completion: secret of %d bytes, want %d", len(secret), SecretSize)
	}
	c.Root = Root(secret, c.Digests)
	mac, err := completionMAC(secret, c)
	if err != nil {
		return err
	}
	c.Mac = mac
	return nil
}

// Check compares c's root and MAC with the secret's. It says nothing about c's numbers: the receiver compares those
// with its own expectation first.
func Check(secret []byte, c *brokerv1.Completion) error {
	if len(secret) != SecretSize || len(c.GetMac()) != sha256.Size || len(c.GetRoot()) != sha256.Size {
		return errs.New(errs.Corrupt, "completion: secret of %d, MAC of %d, root of %d bytes, want %d each",
			len(secret), len(c.GetMac()), len(c.GetRoot()), sha256.Size)
	}
	for i, d := range c.Digests {
		if len(d) != DigestSize {
			return errs.New(errs.Corrupt, "completion: digest %d has %d bytes, want %d", i, len(d), DigestSize)
		}
	}
	mac, err := completionMAC(secret, c)
	if err != nil {
		return errs.Mark(err, errs.Corrupt)
	}
	if !hmac.Equal(mac, c.Mac) {
		return errs.New(errs.Corrupt, "completion: MAC differs")
	}
	if !hmac.Equal(Root(secret, c.Digests), c.Root) {
		return errs.New(errs.Corrupt, "completion: root differs")
	}
	return nil
}

func completionMAC(secret []byte, c *brokerv1.Completion) ([]byte, error) {
	bare := proto.Clone(c).(*brokerv1.Completion)
	bare.Mac = nil
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(bare)
	if err != nil {
		return nil, fmt.Errorf("completion MAC: %w", err)
	}
	m := hmac.New(sha256.New, secret)
	m.Write([]byte("leasehold/completion/v1/source->destination"))
	m.Write(b)
	return m.Sum(nil), nil
}
