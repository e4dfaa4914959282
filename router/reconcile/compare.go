package reconcile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	"leasehold.dev/protos/proof"
)

// pageTokens is the tokens of a page.
const pageTokens = 64

// check collects the differences of one admission.
type check struct {
	r *Result
	e *entry
}

func (c check) number(field string, h *half, got, want uint64) {
	if got != want {
		c.r.find(field, c.e, h.broker, fmt.Sprint(got), fmt.Sprint(want))
	}
}

func (c check) text(field string, h *half, got, want string) {
	if got != want || got == "" {
		c.r.find(field, c.e, h.broker, got, want)
	}
}

// bytes are equal, of size, and not all zero. Absence is a difference, on either side.
func (c check) bytes(field string, h *half, got, want []byte, size int) {
	if len(got) != size || len(want) != size || bytes.Count(got, []byte{0}) == size || !bytes.Equal(got, want) {
		c.r.find(field, c.e, h.broker, hex.EncodeToString(got), hex.EncodeToString(want))
	}
}

// halves holds P's record against D's, whatever the router saw. One that failed beside one that went well is the incident.
func halves(r *Result, e *entry) {
	c, p, d := check{r, e}, e.p, e.d
	if d.GetRole() != brokerv1.Role_ROLE_DESTINATION {
		c.text(FieldRole, d, d.GetRole().String(), brokerv1.Role_ROLE_DESTINATION.String())
		return
	}
	if p.GetCode() != 0 && d.GetCode() == 0 {
		r.find(FieldPrefillOutcome, e, p.broker, fmt.Sprintf("code %d", p.GetCode()), "a success, as D's half")
		return
	}
	if p.GetCode() != 0 || d.GetCode() != 0 { // P may be done before D fails
		return
	}
	c.number(FieldPrefillRows, p, uint64(p.GetRows()), uint64(d.GetRows()))
	c.number(FieldPrefillPages, p, uint64(p.GetPages()), uint64(d.GetPages()))
	c.number(FieldFrom, p, uint64(p.GetFromToken()), uint64(d.GetFromToken()))
	c.bytes(FieldRoot, p, p.GetRoot(), d.GetRoot(), sha256.Size)
	c.bytes(FieldPrefillDigest, p, p.GetPromptDigest(), d.GetPromptDigest(), sha256.Size)
	c.bytes(FieldPrefillLease, d, d.GetSourceLeaseHash(), p.GetLeaseHash(), sha256.Size)
	c.bytes(FieldInstance, d, d.GetSourceInstance(), []byte(p.instance), proof.IDSize)
	c.number(FieldEpoch, d, d.GetSourceEpoch(), p.GetEpoch())
	c.text(FieldTenant, p, p.GetTenant(), d.GetTenant())
	c.bytes(FieldLayout, p, p.GetLayoutHash(), d.GetLayoutHash(), sha256.Size)
	c.bytes(FieldRevision, p, p.GetModelRevision(), d.GetModelRevision(), sha256.Size)
	c.number(FieldMover, p, uint64(p.GetMover()), uint64(d.GetMover()))
}

// whole holds both records of an answered split request against what the router admitted and was told.
func whole(r *Result, e *entry) {
	c, p, d, a := check{r, e}, e.p, e.d, e.view.Admission
	same(c, d)
	c.text(FieldBroker, p, p.broker, a.GetPrefillBroker())
	c.text(FieldWorker, p, p.GetWorker(), a.GetPrefill())
	c.text(FieldTenant, p, p.GetTenant(), a.GetTenant())
	if p.GetCode() != 0 {
		if d.GetCode() != 0 { // else the halves have said so
			r.find(FieldPrefillOutcome, e, p.broker, fmt.Sprintf("code %d", p.GetCode()), "a success, as the answer")
		}
		return
	}
	if d.GetCode() != 0 {
		return // said
	}
	pv, dv := e.view.Prefill, e.view.Decode
	if pv == nil || dv == nil {
		r.find(FieldVerdict, e, "", fmt.Sprintf("prefill %v, decode %v", pv != nil, dv != nil), "both")
		return
	}
	n, from := a.GetPromptTokens(), d.GetFromToken()
	if n < 2 || from >= n-1 {
		r.find(FieldFrom, e, d.broker, fmt.Sprint(from), fmt.Sprintf("less than the %d tokens before the last", max(n, 1)-1))
		return
	}
	rows, pages := uint64(n-1-from), uint64(proof.Pages(n, from))
	c.number(FieldPrefillRows, p, uint64(p.GetRows()), rows)
	c.number(FieldDecodeRows, d, uint64(d.GetRows()), rows)
	c.number(FieldPrefillPages, p, uint64(p.GetPages()), pages)
	c.number(FieldDecodePages, d, uint64(d.GetPages()), pages)
	c.number(FieldPrefillRows, p, uint64(pv.GetRows()), uint64(p.GetRows()))
	c.number(FieldDecodeRows, d, uint64(dv.GetRows()), uint64(d.GetRows()))
	c.number(FieldPrefillPages, p, uint64(pv.GetPages()), uint64(p.GetPages()))
	c.number(FieldDecodePages, d, uint64(dv.GetPages()), uint64(d.GetPages()))
	c.bytes(FieldRoot, p, pv.GetRoot(), p.GetRoot(), sha256.Size)
	c.bytes(FieldRoot, d, dv.GetRoot(), d.GetRoot(), sha256.Size)
	c.bytes(FieldPrefillDigest, p, p.GetPromptDigest(), a.GetPromptDigest(), sha256.Size)
	c.bytes(FieldPrefillDigest, p, pv.GetPromptDigest(), p.GetPromptDigest(), sha256.Size)
	c.bytes(FieldPrefillLease, p, pv.GetLeaseHash(), p.GetLeaseHash(), sha256.Size)
	c.bytes(FieldPrefillLease, d, dv.GetSourceLeaseHash(), p.GetLeaseHash(), sha256.Size)
	c.bytes(FieldInstance, p, pv.GetInstance(), []byte(p.instance), proof.IDSize)
	c.bytes(FieldInstance, d, dv.GetSourceInstance(), []byte(p.instance), proof.IDSize)
	c.number(FieldEpoch, p, pv.GetEpoch(), p.GetEpoch())
	c.number(FieldEpoch, d, dv.GetSourceEpoch(), p.GetEpoch())
	c.number(FieldMover, d, uint64(d.GetMover()), uint64(a.GetMover()))
}

// alone holds D's record of an unsplit request against what the router admitted and was told.
func alone(r *Result, e *entry) {
	c, d := check{r, e}, e.d
	same(c, d)
	if e.p != nil {
		r.find(FieldRole, e, e.p.broker, "a source", "none: the request was not split")
	}
	if d.GetCode() != 0 {
		return
	}
	c.text(FieldRole, d, d.GetRole().String(), brokerv1.Role_ROLE_SOLO.String())
	c.number(FieldDecodeRows, d, uint64(d.GetRows()), 0)
	c.number(FieldDecodePages, d, uint64(d.GetPages()), 0)
}

// same is what D's record has to say of every answered request.
func same(c check, d *half) {
	a, v := c.e.view.Admission, c.e.view
	c.text(FieldBroker, d, d.broker, a.GetDecodeBroker())
	c.text(FieldTenant, d, d.GetTenant(), a.GetTenant())
	if d.GetCode() != 0 {
		c.r.find(FieldDecodeOutcome, c.e, d.broker, fmt.Sprintf("code %d", d.GetCode()), "a success, as the answer")
		return
	}
	c.text(FieldWorker, d, d.GetWorker(), a.GetDecode())
	c.number(FieldReserved, d, uint64(d.GetReserved()), (uint64(a.GetPromptTokens())+uint64(a.GetMaxNewTokens())-1+pageTokens-1)/pageTokens)
	c.bytes(FieldDecodeDigest, d, d.GetPromptDigest(), a.GetPromptDigest(), sha256.Size)
	c.bytes(FieldDecodeDigest, d, v.Decode.GetPromptDigest(), d.GetPromptDigest(), sha256.Size)
	c.bytes(FieldDecodeLease, d, v.Admitted.GetLeaseHash(), d.GetLeaseHash(), sha256.Size)
	c.bytes(FieldDecodeLease, d, v.Decode.GetLeaseHash(), d.GetLeaseHash(), sha256.Size)
	c.bytes(FieldRevision, d, d.GetModelRevision(), a.GetModelRevision(), sha256.Size)
	c.bytes(FieldLayout, d, v.Decode.GetLayoutHash(), d.GetLayoutHash(), sha256.Size)
}
