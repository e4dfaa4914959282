//go:build !faults

package drive

import moverv1 "leasehold.dev/protos/gen/leasehold/mover/v1"

func listen() (end func(), err error) { return func() {}, nil }

func faulty(r *moverv1.DriveRequest) *moverv1.DriveRequest { return r }
