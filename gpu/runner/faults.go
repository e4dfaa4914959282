//go:build faults

package runner

import "leasehold.dev/protos/fault"

// misplan names a longer sequence than there is, in the first item of the step.
func (r *Runner) misplan() {
	if fault.At(fault.RunnerStep) == fault.Corrupt {
		r.work[0].Pos += uint32(fault.N(fault.RunnerStep))
	}
}
