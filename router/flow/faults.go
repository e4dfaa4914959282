//go:build faults

package flow

import (
	"leasehold.dev/protos/fault"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

// misadmit changes an admission before it is signed.
func misadmit(a *meshv1.Admission) {
	if fault.At(fault.RouterAdmit) == fault.Corrupt {
		a.PromptDigest[0] ^= 1
	}
}
