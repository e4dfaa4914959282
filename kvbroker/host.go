package kvbroker

import (
	"crypto/sha256"
	"fmt"
	"os"
	"strings"

	"leasehold.dev/protos/errs"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

// thisHost names what two brokers must have in common to map each other's pools: the running kernel, the view of the file
// system (their sockets are found by path) and the user.
func thisHost() (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", errs.New(errs.Unavailable, "-host auto: %w", err)
	}
	mounts, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return "", errs.New(errs.Unavailable, "-host auto: %w", err)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d", strings.TrimSpace(string(boot)), mounts, os.Geteuid()))
	return fmt.Sprintf("%x", sum[:8]), nil
}

// between are the movers that a broker can be told to use with others.
var between = map[string]meshv1.Mover{"shm": meshv1.Mover_MOVER_SHM, "ucx": meshv1.Mover_MOVER_UCX, "grpc": meshv1.Mover_MOVER_GRPC}

func moversOf(names string) ([]meshv1.Mover, error) {
	out := []meshv1.Mover{}
	for _, n := range strings.Split(names, ",") {
		m, ok := between[n]
		if !ok && names != "" {
			return nil, errs.New(errs.Invalid, "-movers: %q is none of shm, ucx, grpc", n)
		}
		if ok {
			out = append(out, m)
		}
	}
	return out, nil
}
