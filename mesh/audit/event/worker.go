package event

import (
	"encoding/hex"

	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

// Kinds of a worker's records.
const (
	KindPrefillVerdict = "prefill.verdict"
	KindDecodeVerdict  = "decode.verdict"
	KindDecodeFinished = "decode.finished"
	KindHalfFailed     = "half.failed"
	KindFaults         = "worker.faults"
)

type (
	// PrefillVerdict is what prefill counted for one admission, whoever hears of it.
	PrefillVerdict struct {
		Admission    string `json:"admission"`
		Tenant       string `json:"tenant"`
		Lease        string `json:"lease"`
		Instance     string `json:"instance"`
		Epoch        uint64 `json:"epoch"`
		PromptDigest string `json:"prompt_digest"`
		From         uint32 `json:"from"`
		Rows         uint32 `json:"rows"`
		Pages        uint32 `json:"pages"`
		Root         string `json:"root"`
	}

	// DecodeVerdict is what decode has verified.
	DecodeVerdict struct {
		Admission      string `json:"admission"`
		Tenant         string `json:"tenant"`
		Lease          string `json:"lease"`
		SourceLease    string `json:"source_lease,omitempty"`
		SourceInstance string `json:"source_instance,omitempty"`
		SourceEpoch    uint64 `json:"source_epoch,omitempty"`
		PromptDigest   string `json:"prompt_digest"`
		From           uint32 `json:"from"`
		Rows           uint32 `json:"rows"`
		Pages          uint32 `json:"pages"`
		Expected       uint32 `json:"expected"`
		Root           string `json:"root,omitempty"`
		Unsplit        bool   `json:"unsplit"`
	}

	// DecodeFinished is what decode counted at the end of an answer.
	DecodeFinished struct {
		Admission        string `json:"admission"`
		Tenant           string `json:"tenant"`
		Lease            string `json:"lease"`
		PromptTokens     uint32 `json:"prompt_tokens"`
		CompletionTokens uint32 `json:"completion_tokens"`
		OutputDigest     string `json:"output_digest"`
		LogitDigest      string `json:"logit_digest"`
		GuardsOn         bool   `json:"guards_on"`
	}

	// HalfFailed says that a worker refused or gave up an admission that it had a valid ticket or a lease for.
	HalfFailed struct {
		Admission string `json:"admission"`
		Tenant    string `json:"tenant"`
		Half      string `json:"half"` // prefill or decode
		Lease     string `json:"lease,omitempty"`
		Error     string `json:"error"` // kind
		Reason    string `json:"reason"`
	}

	// Faults are the fault records of one lease's kernels.
	Faults struct {
		Admission string        `json:"admission"`
		Tenant    string        `json:"tenant"`
		Lease     string        `json:"lease"`
		Records   []FaultRecord `json:"records"`
	}

	// FaultRecord is one of them; see gpu/engine for what the numbers mean.
	FaultRecord struct {
		Fault string `json:"fault"`
		Page  uint32 `json:"page"`
		Want  uint64 `json:"want"`
		Got   uint64 `json:"got"`
	}
)

// PrefillSaid is the record of a verdict.
func PrefillSaid(tenant string, v *meshv1.PrefillVerdict) PrefillVerdict {
	return PrefillVerdict{Admission: hex.EncodeToString(v.GetAdmissionId()), Tenant: tenant, Lease: hex.EncodeToString(v.GetLeaseHash()),
		Instance: hex.EncodeToString(v.GetInstance()), Epoch: v.GetEpoch(), PromptDigest: hex.EncodeToString(v.GetPromptDigest()),
		From: v.GetFromToken(), Rows: v.GetRows(), Pages: v.GetPages(), Root: hex.EncodeToString(v.GetRoot())}
}

// DecodeSaid is the record of a verdict.
func DecodeSaid(tenant string, v *meshv1.DecodeVerdict) DecodeVerdict {
	return DecodeVerdict{Admission: hex.EncodeToString(v.GetAdmissionId()), Tenant: tenant, Lease: hex.EncodeToString(v.GetLeaseHash()),
		SourceLease: hex.EncodeToString(v.GetSourceLeaseHash()), SourceInstance: hex.EncodeToString(v.GetSourceInstance()), SourceEpoch: v.GetSourceEpoch(),
		PromptDigest: hex.EncodeToString(v.GetPromptDigest()), From: v.GetFromToken(), Rows: v.GetRows(), Pages: v.GetPages(),
		Expected: v.GetExpectedPages(), Root: hex.EncodeToString(v.GetRoot()), Unsplit: v.GetUnsplit()}
}

// Kind of the record.
func (PrefillVerdict) Kind() string { return KindPrefillVerdict }

// Kind of the record.
func (DecodeVerdict) Kind() string { return KindDecodeVerdict }

// Kind of the record.
func (DecodeFinished) Kind() string { return KindDecodeFinished }

// Kind of the record.
func (HalfFailed) Kind() string { return KindHalfFailed }

// Kind of the record.
func (Faults) Kind() string { return KindFaults }
