//go:build faults

package prefill

import (
	"bytes"
	"slices"

	"leasehold.dev/kvbroker/client"
	"leasehold.dev/protos/fault"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/proof"
)

// stubbed is a refusal that drains through the path of a success: one placeholder token stands for the prompt.
func stubbed(ids []int32) ([]int32, uint32) {
	if fault.At(fault.PrefillAdmit) == fault.Truncate {
		ids = []int32{ids[0], ids[len(ids)-1]}
	}
	return ids, proof.Pages(uint32(len(ids)), 0)
}

// missealed changes what the broker is told of full pages.
func missealed(full []client.Seal) []client.Seal {
	if len(full) == 0 {
		return full
	}
	switch fault.At(fault.PrefillSeal) {
	case fault.Drop:
		return full[1:]
	case fault.Duplicate:
		return append(slices.Clone(full[:1]), full...)
	case fault.Corrupt:
		full = slices.Clone(full)
		full[0].Digest[0] ^= 1
	}
	return full
}

// misspoken changes the verdict.
func misspoken(v *meshv1.PrefillVerdict) *meshv1.PrefillVerdict {
	switch fault.At(fault.PrefillAnswer) {
	case fault.Drop:
		return nil
	case fault.Truncate:
		v.Rows--
	case fault.StaleEpoch:
		v.Epoch--
	case fault.Corrupt:
		v.Root = bytes.Clone(v.Root)
		v.Root[0] ^= 1
	case fault.Reorder: // answered before it can have been computed
		v.ComputeUs, v.SpanUs = v.ComputeUs/1000, v.SpanUs/1000
	}
	return v
}
