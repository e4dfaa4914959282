package shape

import openaiv1 "leasehold.dev/protos/gen/leasehold/openai/v1"

// Receipt is the body of GET /v1/receipts/{id}.
func Receipt(r *openaiv1.GetReceiptResponse) ([]byte, error) {
	return encode(struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Receipt string `json:"leasehold_receipt"`
	}{r.Id, r.Object, r.LeaseholdReceipt})
}

// Report is the body of POST /v1/receipts/{id}/report.
func Report(r *openaiv1.ReportReceiptResponse) ([]byte, error) {
	return encode(struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Receipt string `json:"receipt"`
		State   string `json:"state"`
		Replay  string `json:"replay"`
		Opened  uint32 `json:"opened"`
	}{r.Id, r.Object, r.Receipt, r.State, r.Replay, r.Opened})
}

type jwk struct {
	Kty string `json:"kty"`
	Crv string `json:"crv"`
	Kid string `json:"kid"`
	X   string `json:"x"`
	Alg string `json:"alg"`
	Use string `json:"use"`
}

// Keys is a JWKS.
func Keys(r *openaiv1.ListReceiptKeysResponse) ([]byte, error) {
	keys := []jwk{}
	for _, k := range r.Keys {
		keys = append(keys, jwk{k.Kty, k.Crv, k.Kid, k.X, k.Alg, k.Use})
	}
	return encode(map[string][]jwk{"keys": keys})
}
