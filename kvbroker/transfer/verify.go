package transfer

import (
	"bytes"

	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/fault"
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
	if err := e.arrived(found); err != nil && !fault.Off(fault.Counts) {
		return err
	}
	if err := e.said(peer, c); err != nil {
		return err
	}
	if err := proof.Check(secret, c); err != nil && !fault.Off(fault.MAC) {
		return err
	}
	if fault.Off(fault.Digest) {
		return nil
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

// number and identity are one thing that a Completion says, and what it has to say.
type (
	number struct {
		name      string
		got, want uint64
	}
	identity struct {
		name      string
		got, want []byte
	}
)

func (e *Expectation) said(peer Broker, c *brokerv1.Completion) error {
	if c == nil {
		return errs.New(errs.Corrupt, "verify: no completion")
	}
	if peer.Epoch == 0 {
		return errs.New(errs.Corrupt, "verify: the handshake gave no epoch")
	}
	if c.Tenant != e.Tenant {
		return errs.New(errs.Corrupt, "verify: completion is of another tenant")
	}
	err := same([]identity{
		{"admission", c.AdmissionId, e.Admission},
		{"model revision", c.ModelRevision, e.ModelRevision},
		{"layout hash", c.LayoutHash, e.LayoutHash},
	})
	if err == nil && !fault.Off(fault.Counts) {
		err = equal([]number{
			{"from", uint64(c.FromToken), uint64(e.From)},
			{"rows", uint64(c.Rows), uint64(e.Rows)},
			{"pages", uint64(c.Pages), uint64(e.Pages)},
			{"digests", uint64(len(c.Digests)), uint64(e.Pages)},
			{"lease hash bytes", uint64(len(c.Lease)), 32},
		})
	}
	if err == nil && !fault.Off(fault.Epoch) {
		err = equal([]number{{"epoch", c.Epoch, peer.Epoch}})
	}
	if err == nil && !fault.Off(fault.Epoch) {
		err = same([]identity{{"instance", c.Instance, peer.Instance}, {"destination instance", c.DestinationInstance, e.Destination}})
	}
	if err == nil && !fault.Off(fault.PromptDigest) {
		err = same([]identity{{"prompt digest", c.PromptDigest, e.PromptDigest}})
	}
	return err
}

func equal(numbers []number) error {
	for _, n := range numbers {
		if n.got != n.want {
			return errs.New(errs.Corrupt, "verify: completion says %s %d, expected %d", n.name, n.got, n.want)
		}
	}
	return nil
}

func same(ids []identity) error {
	for _, id := range ids {
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
		if len(b) != pagesum.Size || i >= len(found) { // with MAC and counts on, both were seen before
			return errs.New(errs.Corrupt, "verify: digest %d of %d pages has %d bytes", i, len(found), len(b))
		}
		d := pagesum.Digest(b)
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
