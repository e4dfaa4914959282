package transfer

import (
	"bytes"

	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	"leasehold.dev/protos/pagesum"
	"leasehold.dev/protos/proof"
)

// Found is what the receiver computed from the bytes of one page, after they had arrived.
type Found struct {
	Digest  pagesum.Digest // over the page's RowsOf rows
	Nonzero uint32         // of those rows, the ones with any bit set
}

// Verify decides whether the pages that arrived are the ones that were expected. It compares in this order, and stops at
// the first difference: what arrived with the expectation; the sender's numbers and names with the expectation; root and
// MAC with the secret; each page's digest with what arrived. peer is the source broker as handshaken, its epoch included;
// found has the pages in order. Every error is Corrupt.
func Verify(e *Expectation, peer Broker, secret []byte, c *brokerv1.Completion, found []Found) error {
	if err := e.arrived(found); err != nil {
		return err
	}
	if err := e.said(peer, c); err != nil {
		return err
	}
	if err := proof.Check(secret, c); err != nil {
		return err
	}
	return digests(c, found)
}

func (e *Expectation) arrived(found []Found) error {
	if uint64(len(found)) != uint64(e.Pages) {
		return errs.New(errs.Corrupt, "verify: %d pages arrived, %d expected", len(found), e.Pages)
	}
	for i, f := range found {
		if want := e.RowsOf(uint32(i)); f.Nonzero != want {
			return errs.New(errs.Corrupt, "verify: page %d arrived with %d rows written, %d expected", i, f.Nonzero, want)
		}
	}
	return nil
}

func (e *Expectation) said(peer Broker, c *brokerv1.Completion) error {
	if c == nil {
		return errs.New(errs.Corrupt, "verify: no completion")
	}
	if peer.Epoch == 0 {
		return errs.New(errs.Corrupt, "verify: the handshake gave no epoch")
	}
	for _, n := range []struct {
		name      string
		got, want uint64
	}{
		{"from", uint64(c.FromToken), uint64(e.From)},
		{"rows", uint64(c.Rows), uint64(e.Rows)},
		{"pages", uint64(c.Pages), uint64(e.Pages)},
		{"digests", uint64(len(c.Digests)), uint64(e.Pages)},
		{"epoch", c.Epoch, peer.Epoch},
		{"lease hash bytes", uint64(len(c.Lease)), 32},
	} {
		if n.got != n.want {
			return errs.New(errs.Corrupt, "verify: completion says %s %d, expected %d", n.name, n.got, n.want)
		}
	}
	if c.Tenant != e.Tenant {
		return errs.New(errs.Corrupt, "verify: completion is of another tenant")
	}
	for _, id := range []struct {
		name      string
		got, want []byte
	}{
		{"admission", c.AdmissionId, e.Admission},
		{"instance", c.Instance, peer.Instance},
		{"destination instance", c.DestinationInstance, e.Destination},
		{"model revision", c.ModelRevision, e.ModelRevision},
		{"layout hash", c.LayoutHash, e.LayoutHash},
		{"prompt digest", c.PromptDigest, e.PromptDigest},
	} {
		if len(id.want) == 0 || !bytes.Equal(id.got, id.want) {
			return errs.New(errs.Corrupt, "verify: completion says %s %s, expected %s", id.name, short(id.got), short(id.want))
		}
	}
	return nil
}

// digests compares the sender's with the receiver's. Two equal ones are a page that was sent twice: keys are turned by
// position, so no two pages of one prompt hold the same rows.
func digests(c *brokerv1.Completion, found []Found) error {
	seen := make(map[pagesum.Digest]int, len(found))
	for i, b := range c.Digests {
		d := pagesum.Digest(b) // proof.Check has seen the length
		if d.IsZero() {
			return errs.New(errs.Corrupt, "verify: page %d has no digest", i)
		}
		if first, ok := seen[d]; ok {
			return errs.New(errs.Corrupt, "verify: page %d repeats page %d", i, first)
		}
		seen[d] = i
		if d != found[i].Digest {
			return errs.New(errs.Corrupt, "verify: page %d arrived with digest %s, was sealed with %s", i, found[i].Digest, d)
		}
	}
	return nil
}
