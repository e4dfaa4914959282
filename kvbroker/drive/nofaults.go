//go:build !faults

package drive

import moverv1 "leasehold.dev/protos/gen/leasehold/mover/v1"

func faulty(r *moverv1.DriveRequest) *moverv1.DriveRequest { return r }
