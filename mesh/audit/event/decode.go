package event

import (
	"bytes"
	"encoding/json"
	"strings"

	"leasehold.dev/protos/errs"
)

// MaxReason bounds the words of an error in a record.
const MaxReason = 512

// Reason is err's text, clipped.
func Reason(err error) string {
	if err == nil {
		return ""
	}
	return Clip(err.Error())
}

// Clip bounds a text, and leaves no half character.
func Clip(s string) string {
	if len(s) > MaxReason {
		s = s[:MaxReason]
	}
	return strings.ToValidUTF8(s, "")
}

// Decode reads the fields of a record of one of this package's kinds; others, and fields that the kind does not have,
// are Invalid.
func Decode(kind string, fields []byte) (any, error) {
	switch kind {
	case KindBrokerStarted:
		return read[BrokerStarted](kind, fields)
	case KindLeaseGranted:
		return read[LeaseGranted](kind, fields)
	case KindLeaseOwned:
		return read[LeaseOwned](kind, fields)
	case KindLeaseFinished, KindLeaseHandedOver, KindLeaseReleased, KindLeaseQuarantined, KindLeaseProven:
		l, err := read[Lease](kind, fields)
		l.As = kind
		return l, err
	case KindPagesZeroed:
		return read[PagesZeroed](kind, fields)
	case KindLateWrite:
		return read[LateWrite](kind, fields)
	case KindTransferFailed:
		return read[TransferFailed](kind, fields)
	case KindSourceChanged:
		return read[SourceChanged](kind, fields)
	case KindFault:
		return read[Fault](kind, fields)
	case KindPrefillVerdict:
		return read[PrefillVerdict](kind, fields)
	case KindDecodeVerdict:
		return read[DecodeVerdict](kind, fields)
	case KindDecodeFinished:
		return read[DecodeFinished](kind, fields)
	case KindHalfFailed:
		return read[HalfFailed](kind, fields)
	case KindFaults:
		return read[Faults](kind, fields)
	case KindAdmission:
		return read[Admission](kind, fields)
	case KindResponse:
		return read[Response](kind, fields)
	case KindDisagreement:
		return read[Disagreement](kind, fields)
	case KindIncident:
		return read[Incident](kind, fields)
	case KindRetry:
		return read[Retry](kind, fields)
	}
	return nil, errs.New(errs.Invalid, "audit: no kind of event: %.64q", kind)
}

func read[E any](kind string, fields []byte) (E, error) {
	var e E
	d := json.NewDecoder(bytes.NewReader(fields))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil {
		return e, errs.New(errs.Invalid, "audit: fields of %s: %w", kind, err)
	}
	return e, nil
}
