package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"leasehold.dev/protos/errs"
)

// Hash of a record.
type Hash [sha256.Size]byte

// MarshalText is lower-case hex.
func (h Hash) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h[:]), nil }

// UnmarshalText is the inverse of MarshalText.
func (h *Hash) UnmarshalText(b []byte) error {
	if len(b) != hex.EncodedLen(len(h)) {
		return errs.New(errs.Invalid, "audit: a hash of %d characters, want %d", len(b), hex.EncodedLen(len(h)))
	}
	if _, err := hex.Decode(h[:], b); err != nil {
		return errs.New(errs.Invalid, "audit: hash: %w", err)
	}
	return nil
}

// String is the hash in hex.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// body is a record without its hash, in the order of the line's members.
type body struct {
	Seq      uint64          `json:"seq"`
	Time     time.Time       `json:"time"`
	Service  string          `json:"service"`
	Instance string          `json:"instance"`
	Kind     string          `json:"kind"`
	Fields   json.RawMessage `json:"fields"`
	Prev     Hash            `json:"prev"`
}

// Record is one line of a log. Seq counts from 1.
type Record struct {
	body
	Hash Hash
}

// Link is what the next record is chained to.
type Link struct {
	Seq  uint64
	Hash Hash
}

// Link of the record.
func (r *Record) Link() Link { return Link{r.Seq, r.Hash} }

const (
	recordDomain = "leasehold-audit-v1\n"
	hashOpen     = `,"hash":"`
	hashClose    = `"}`
	tailSize     = len(hashOpen) + 2*sha256.Size + len(hashClose)
)

func hashOf(body []byte) Hash {
	h := sha256.New()
	h.Write([]byte(recordDomain))
	h.Write(body)
	return Hash(h.Sum(nil))
}

// encode appends b's line, with its end of line, to dst.
func encode(dst []byte, b body) ([]byte, Link, error) {
	b.Time = b.Time.UTC()
	text, err := json.Marshal(b)
	if err != nil {
		return dst, Link{}, errs.New(errs.Internal, "audit: record %d of kind %s: %w", b.Seq, b.Kind, err)
	}
	h := hashOf(text)
	dst = append(dst, text[:len(text)-1]...)
	dst = append(dst, hashOpen...)
	dst = hex.AppendEncode(dst, h[:])
	return append(dst, hashClose+"\n"...), Link{b.Seq, h}, nil
}

// Decode reads one line, without its end of line. It is a [Break]: Garbled when the line has another form than the one
// that a log writes, Edited when its hash is not the one of its bytes.
func Decode(line []byte) (Record, error) {
	var r Record
	cut := len(line) - tailSize
	if cut < 1 || string(line[cut:cut+len(hashOpen)]) != hashOpen || string(line[len(line)-len(hashClose):]) != hashClose {
		return r, garbled("it does not end in a hash")
	}
	if err := r.Hash.UnmarshalText(line[cut+len(hashOpen) : len(line)-len(hashClose)]); err != nil {
		return r, garbled("%v", err)
	}
	text := append(bytes.Clone(line[:cut]), '}')
	if err := strict(text, &r.body); err != nil {
		return r, garbled("%v", err)
	}
	if again, err := json.Marshal(r.body); err != nil || !bytes.Equal(again, text) || r.Seq == 0 {
		return r, garbled("it is not spelt as a log writes it")
	}
	if got := hashOf(text); got != r.Hash {
		return r, &Break{Edited, "record " + number(r.Seq) + " has hash " + short(got) + ", its line says " + short(r.Hash)}
	}
	return r, nil
}

// strict decodes one JSON value that has no member too many and nothing after it.
func strict(text []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return err
	}
	if d.More() {
		return errs.New(errs.Invalid, "text after the record")
	}
	return nil
}
