//go:build cgo && faults

package engine

// #cgo CXXFLAGS: -DLH_FAULTS
// #include <stdint.h>
// void lh_faults_off(uint32_t guards);
// void lh_faults_keep(void);
// int lh_faults_write_late(void);
import "C"

import "leasehold.dev/protos/fault"

// offBits are LH_OFF_* of internal.h.
var offBits = map[fault.Guard]C.uint32_t{fault.TagRead: 1, fault.TagWrite: 2, fault.Length: 4}

// faultyStep passes the switches on before a step.
func faultyStep() {
	var off C.uint32_t
	for g, bit := range offBits {
		if fault.Off(g) {
			off |= bit
		}
	}
	C.lh_faults_off(off)
	switch fault.At(fault.EngineAppend) {
	case fault.Duplicate:
		C.lh_faults_keep()
	case fault.LateWrite:
		C.lh_faults_write_late()
	}
}
