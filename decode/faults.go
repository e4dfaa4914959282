//go:build faults

package decode

import (
	"slices"

	"leasehold.dev/gpu/runner"
	"leasehold.dev/protos/fault"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/pagesum"
)

// early is a worker that does not wait for its pages: it takes them for its own, and says of them what was asked for.
func (j *job) early(seq *runner.Sequence, v *meshv1.DecodeVerdict, moved uint32) bool {
	if fault.At(fault.DecodeOwned) != fault.Drop {
		return false
	}
	n := j.a.PromptTokens
	v.Rows, v.Pages, v.ExpectedPages, v.Unsplit = n-1, moved, moved, false
	j.verified = n - 1
	seq.Verified, seq.Tokens, seq.StartDigest = n-1, j.ids[n-1:], &pagesum.Digest{}
	return true
}

// misfed changes what is appended after the verified rows.
func misfed(ids []int32) []int32 {
	switch fault.At(fault.DecodeFed) {
	case fault.Truncate:
		return append([]int32{0}, ids...)
	case fault.Corrupt:
		ids = slices.Clone(ids)
		ids[len(ids)-1] ^= 1
	}
	return ids
}

// misjudged changes the verdict; nil is none at all.
func misjudged(v *meshv1.DecodeVerdict) *meshv1.DecodeVerdict {
	switch fault.At(fault.DecodeAnswer) {
	case fault.Drop:
		return nil
	case fault.Truncate:
		v.Rows--
	case fault.StaleEpoch:
		v.SourceEpoch--
	case fault.Corrupt:
		v.PromptDigest = slices.Clone(v.PromptDigest)
		v.PromptDigest[0] ^= 1
	}
	return v
}

// mistold changes the tokens that go to the router.
func mistold(t []*decodev1.Tokens) []*decodev1.Tokens {
	if len(t) == 0 {
		return t
	}
	switch fault.At(fault.DecodeToken) {
	case fault.Drop:
		return t[1:]
	case fault.Duplicate:
		return append(slices.Clone(t[:1]), t...)
	}
	return t
}
