package edge

import (
	"bytes"
	"context"
	"time"

	"leasehold.dev/protos/errs"
	openaiv1 "leasehold.dev/protos/gen/leasehold/openai/v1"
	"leasehold.dev/protos/proof"
	claims "leasehold.dev/protos/receipt"
	"leasehold.dev/router/apierr"
	"leasehold.dev/router/receipt"
	"leasehold.dev/router/validate"
)

// Again runs the request of a receipt once more, elsewhere, and says what came of it: one of receipt's Replay words. ids
// and stop have the digests that the receipt says.
type Again func(ctx context.Context, c *claims.Claims, ids []int32, stop []string) string

// GetReceipt is for the tenant whose answer it is about.
func (s *Service) GetReceipt(ctx context.Context, r *openaiv1.GetReceiptRequest) (*openaiv1.GetReceiptResponse, error) {
	tenant := s.tenant(ctx)
	if tenant == nil {
		return nil, apierr.InvalidKey()
	}
	_, jws, err := s.receiptOf(tenant.Name, r.GetId())
	if err != nil {
		return nil, err
	}
	return &openaiv1.GetReceiptResponse{Id: r.GetId(), Object: "leasehold.receipt", LeaseholdReceipt: jws}, nil
}

func (s *Service) receiptOf(tenant, id string) (receipt.ID, string, error) {
	at, ok := receipt.ParseID(id)
	if !ok {
		return at, "", apierr.NoReceipt()
	}
	jws, err := s.Receipts.Store.Get(time.Now(), at, tenant)
	if err != nil {
		return at, "", apierr.NoReceipt()
	}
	return at, jws, nil
}

// ReportReceipt opens the event before anything else is tried.
func (s *Service) ReportReceipt(ctx context.Context, r *openaiv1.ReportReceiptRequest) (*openaiv1.ReportReceiptResponse, error) {
	tenant := s.tenant(ctx)
	if tenant == nil {
		return nil, apierr.InvalidKey()
	}
	leave, ok := s.tenants.enter(tenant.Name, tenant.MaxConcurrent)
	if !ok {
		return nil, s.failed(ctx, busy(tenant), "")
	}
	defer leave()
	id, jws, err := s.receiptOf(tenant.Name, r.GetId())
	if err != nil {
		return nil, err
	}
	var v *validate.Request
	var ids []int32
	switch given := r.GetRequest().(type) {
	case *openaiv1.ReportReceiptRequest_Chat:
		v, ids, err = s.parseChat(given.Chat)
	case *openaiv1.ReportReceiptRequest_Completion:
		v, ids, err = s.parseText(given.Completion)
	}
	if err != nil {
		return nil, s.failed(ctx, err, "")
	}
	event, err := s.Receipts.Desk.Open(time.Now(), tenant.Name, id, jws)
	if err != nil {
		return nil, s.failed(ctx, err, "")
	}
	if v != nil {
		word, err := s.again(ctx, jws, v, ids)
		if err == nil {
			event, err = s.Receipts.Desk.Replayed(event.ID, word)
		}
		if err != nil {
			return nil, s.failed(ctx, err, "")
		}
	}
	return &openaiv1.ReportReceiptResponse{Id: event.ID, Object: "leasehold.report", Receipt: id.String(), State: "open", Replay: event.Replay,
		Opened: uint32(event.Opened.Unix())}, nil
}

// again runs the request again when it is the one that the receipt is about.
func (s *Service) again(ctx context.Context, jws string, v *validate.Request, ids []int32) (string, error) {
	c, err := s.Receipts.Ring.Keys.Verify(jws)
	if err != nil { // we signed it ourselves
		return "", errs.New(errs.Internal, "a receipt of our own: %s", err.Error())
	}
	digest := proof.PromptDigest(c.Nonce, c.Tenant, c.ModelRevision, ids)
	stop := v.Sampling.GetStop()
	if !bytes.Equal(digest, c.PromptDigest) || !bytes.Equal(claims.StopDigest(stop), c.Sampling.StopDigest) {
		return receipt.ReplayOther, nil
	}
	if s.Again == nil {
		return receipt.ReplayNotRun, nil
	}
	return s.Again(ctx, c, ids, stop), nil
}

// ListReceiptKeys needs no key: whoever was handed a receipt may check it.
func (s *Service) ListReceiptKeys(context.Context, *openaiv1.ListReceiptKeysRequest) (*openaiv1.ListReceiptKeysResponse, error) {
	out := &openaiv1.ListReceiptKeysResponse{}
	for _, k := range s.Receipts.Ring.JWKS() {
		out.Keys = append(out.Keys, &openaiv1.ReceiptKey{Kty: "OKP", Crv: "Ed25519", Kid: k.ID, X: k.X, Alg: "EdDSA", Use: "sig"})
	}
	return out, nil
}
