package hosts

import (
	"testing"

	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

// mover is a way between two hosts.
type mover struct {
	name    string
	is      meshv1.Mover
	process []string // arguments of the mover process beside each broker; nil: none
}

// movers are the ways that are tested between hosts.
var movers = []mover{
	{"grpc", meshv1.Mover_MOVER_GRPC, nil},
	{"ucx", meshv1.Mover_MOVER_UCX, []string{"-transports", "tcp", "-insecure-tcp", "-insecure-tcp-device", "eth0"}},
}

// each runs a test by every mover.
func each(t *testing.T, f func(*testing.T, mover)) {
	for _, m := range movers {
		t.Run(m.name, func(t *testing.T) { f(t, m) })
	}
}
