package ucx

import (
	"maps"
	"slices"
	"strings"

	"leasehold.dev/protos/errs"
)

// transports that may carry pages. Each gives the receiver's side the say over where bytes land and is covered by tests, or
// is the hardware's version of the same protocol. What is not named is refused, UCX's aliases ("all", "sm", "ib") and
// negations included: they change their meaning with the host.
var transports = map[string]bool{
	"rc": true, "rc_verbs": true, "rc_mlx5": true, // reliable connections of InfiniBand and RoCE
	"cuda_copy": true, "cuda_ipc": true,
	"sysv": true, "posix": true, "cma": true, // shared memory of one host, one uid
	"self": true,
}

// tcp has neither keys nor encryption, so pages would cross a network in plain text.
const tcp = "tcp"

// loopback is where tcp stays unless a test says otherwise.
const loopback = "lo"

// checkTransports says what is wrong with a list. Plain allows tcp, for tests.
func checkTransports(list []string, plain bool) error {
	if len(list) == 0 {
		return errs.New(errs.Invalid, "ucx: no transport, want some of %s", known())
	}
	for i, t := range list {
		switch {
		case t == tcp && !plain:
			return errs.New(errs.Denied, "ucx: transport tcp sends pages in plain text: it is for tests only")
		case t != tcp && !transports[t]:
			return errs.New(errs.Denied, "ucx: transport %q, want some of %s", t, known())
		case slices.Contains(list[:i], t):
			return errs.New(errs.Invalid, "ucx: transport %q twice", t)
		}
	}
	return nil
}

func known() string { return strings.Join(slices.Sorted(maps.Keys(transports)), ", ") }

// segment is how many bytes the shared memory transports copy at a time, the header of a part included: UCX's own is 8 KiB, and
// each part costs a message. Their queue counts bytes in 16 bits.
const segment = "33024"

// environment is what UCX reads from there only: for the shared memory transports to notice a dead peer, and how large their
// parts are; for cma to have a lane at all with endpoints that notice one.
func environment(list []string) map[string]string {
	env := map[string]string{}
	for _, t := range list {
		switch t {
		case "posix", "sysv":
			env["UCX_"+strings.ToUpper(t)+"_ERROR_HANDLING"] = "y"
			env["UCX_"+strings.ToUpper(t)+"_SEG_SIZE"] = segment
		case "cma":
			env["UCX_CMA_MEMORY_INVALIDATE"] = "y"
		}
	}
	return env
}

// settings for ucp_config_modify. device is tcp's network interface.
func settings(list []string, device string) []string {
	s := []string{
		"TLS", strings.Join(list, ","),
		"RNDV_SCHEME", "get_zcopy", // the receiver reads, where a transport can
		"KEEPALIVE_INTERVAL", "200ms",
	}
	if slices.Contains(list, tcp) {
		s = append(s, "NET_DEVICES", device)
	}
	return s
}
