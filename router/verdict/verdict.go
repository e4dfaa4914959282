package verdict

import (
	"bytes"
	"crypto/sha256"
	"fmt"

	"leasehold.dev/protos/errs"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/proof"
)

// Views are all that is known of one admission before its first token.
type Views struct {
	Admission *meshv1.Admission
	Layout    []byte             // of the route's workers
	Admitted  *decodev1.Admitted // what D reserved
	Decode    *meshv1.DecodeVerdict
	Prefill   *meshv1.PrefillVerdict // nil when unsplit
}

// Disagreement is one field on which two views differ. Its kind is Corrupt.
type Disagreement struct {
	Field     string // a metric label: one of the verdicts' fields
	Got, Want string
}

func (d *Disagreement) Error() string {
	return fmt.Sprintf("verdicts disagree on %s: got %s, want %s", d.Field, d.Got, d.Want)
}

// Compare returns nil when every view agrees, else the first disagreement.
func Compare(v Views) error {
	c := &comparison{}
	if v.Admission == nil || v.Admitted == nil || v.Decode == nil {
		c.fail("presence", "nothing", "admission, Admitted and decode verdict")
		return c.err
	}
	d, a := v.Decode, v.Admission
	c.bytes("decode.admission_id", d.AdmissionId, a.Id, proof.IDSize)
	c.bytes("decode.prompt_digest", d.PromptDigest, a.PromptDigest, sha256.Size)
	c.bytes("decode.model_revision", d.ModelRevision, a.ModelRevision, sha256.Size)
	c.bytes("decode.layout_hash", d.LayoutHash, v.Layout, sha256.Size)
	c.bytes("decode.lease_hash", d.LeaseHash, v.Admitted.LeaseHash, sha256.Size)
	c.bytes("decode.instance", d.Instance, d.Instance, proof.IDSize) // only D knows them; the receipt names both
	c.some("decode.epoch", d.Epoch)
	c.number("admitted.pages", uint64(v.Admitted.Pages), (uint64(a.PromptTokens)+uint64(a.MaxNewTokens)-1+63)/64)
	if a.Mover == meshv1.Mover_MOVER_NONE {
		unsplit(c, v)
	} else {
		split(c, v)
	}
	return c.err
}

func unsplit(c *comparison, v Views) {
	d := v.Decode
	if v.Prefill != nil {
		c.fail("prefill", "a verdict", "none")
	}
	c.flag("decode.unsplit", d.Unsplit, true)
	c.number("admitted.expected_pages", uint64(v.Admitted.ExpectedPages), 0)
	c.number("decode.expected_pages", uint64(d.ExpectedPages), 0)
	c.number("decode.rows", uint64(d.Rows), 0)
	c.number("decode.pages", uint64(d.Pages), 0)
	c.number("decode.bytes_moved", d.BytesMoved, 0)
	c.bytes("decode.root", d.Root, nil, 0)
	c.bytes("decode.source_lease_hash", d.SourceLeaseHash, nil, 0)
	c.bytes("decode.source_instance", d.SourceInstance, nil, 0)
	c.number("decode.source_epoch", d.SourceEpoch, 0)
	c.number("decode.from_token", uint64(d.FromToken), 0)
	c.number("decode.mover", uint64(d.Mover), uint64(v.Admission.Mover))
}

func split(c *comparison, v Views) {
	d, p, a := v.Decode, v.Prefill, v.Admission
	if p == nil {
		c.fail("prefill", "no verdict", "one")
		return
	}
	c.bytes("prefill.admission_id", p.AdmissionId, a.Id, proof.IDSize)
	c.bytes("prefill.prompt_digest", p.PromptDigest, a.PromptDigest, sha256.Size)
	c.bytes("prefill.model_revision", p.ModelRevision, a.ModelRevision, sha256.Size)
	c.bytes("prefill.layout_hash", p.LayoutHash, v.Layout, sha256.Size)
	c.bytes("decode.source_lease_hash", d.SourceLeaseHash, p.LeaseHash, sha256.Size)
	c.bytes("decode.source_instance", d.SourceInstance, p.Instance, proof.IDSize)
	c.number("decode.source_epoch", d.SourceEpoch, p.Epoch)
	c.some("decode.source_epoch", d.SourceEpoch) // a broker counts from 1
	c.bytes("decode.root", d.Root, p.Root, sha256.Size)
	c.flag("decode.unsplit", d.Unsplit, false)
	c.number("decode.mover", uint64(d.Mover), uint64(a.Mover))

	n, from := a.PromptTokens, d.FromToken
	if n < 2 || from >= n-1 {
		c.fail("decode.from_token", fmt.Sprint(from), fmt.Sprintf("less than the %d tokens before the last", max(n, 1)-1))
		return
	}
	c.number("prefill.from_token", uint64(p.FromToken), uint64(from))
	rows, pages := uint64(n-1-from), uint64(proof.Pages(n, from))
	c.number("prefill.rows", uint64(p.Rows), rows)
	c.number("decode.rows", uint64(d.Rows), rows)
	c.number("prefill.pages", uint64(p.Pages), pages)
	c.number("decode.pages", uint64(d.Pages), pages)
	c.number("decode.expected_pages", uint64(d.ExpectedPages), pages)
	c.number("admitted.expected_pages", uint64(v.Admitted.ExpectedPages), pages)
	if a.Mover == meshv1.Mover_MOVER_LOCAL {
		c.number("decode.bytes_moved", d.BytesMoved, 0) // the pages stay where they are
	} else {
		c.some("decode.bytes_moved", d.BytesMoved)
	}
}

// comparison keeps the first difference.
type comparison struct{ err error }

func (c *comparison) fail(field, got, want string) {
	if c.err == nil {
		c.err = errs.Mark(&Disagreement{field, got, want}, errs.Corrupt)
	}
}

func (c *comparison) number(field string, got, want uint64) {
	if got != want {
		c.fail(field, fmt.Sprint(got), fmt.Sprint(want))
	}
}

// some is for a number that only one side knows, and that is never 0.
func (c *comparison) some(field string, got uint64) {
	if got == 0 {
		c.fail(field, "0", "more")
	}
}

func (c *comparison) flag(field string, got, want bool) {
	if got != want {
		c.fail(field, fmt.Sprint(got), fmt.Sprint(want))
	}
}

// bytes compares values of size bytes. Absence and all zero are differences, whatever the other side says.
func (c *comparison) bytes(field string, got, want []byte, size int) {
	switch {
	case len(got) != size || len(want) != size:
		c.fail(field, fmt.Sprintf("%d bytes", len(got)), fmt.Sprintf("%d bytes, of which %d are known", size, len(want)))
	case size > 0 && bytes.Count(got, []byte{0}) == size:
		c.fail(field, "zero", "a value")
	case !bytes.Equal(got, want):
		c.fail(field, fmt.Sprintf("%x", got), fmt.Sprintf("%x", want))
	}
}
