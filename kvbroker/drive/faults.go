//go:build faults

package drive

import (
	"leasehold.dev/protos/fault"
	moverv1 "leasehold.dev/protos/gen/leasehold/mover/v1"
)

// listen opens the process's fault control; the caller calls what it returns.
func listen() (end func(), err error) {
	c, err := fault.Listen()
	if err != nil || c == nil {
		return func() {}, err
	}
	return func() { _ = c.Close() }, nil
}

// faulty is what a mover tells its broker, with the points mover/drained and mover/landed.
func faulty(r *moverv1.DriveRequest) *moverv1.DriveRequest {
	switch k := r.Kind.(type) {
	case *moverv1.DriveRequest_Drained:
		if fault.At(fault.MoverDrained) == fault.Drop {
			return nil
		}
	case *moverv1.DriveRequest_Landed:
		switch fault.At(fault.MoverLanded) {
		case fault.Drop:
			return nil
		case fault.Corrupt:
			k.Landed.Digest[0] ^= 1
		}
	}
	return r
}
