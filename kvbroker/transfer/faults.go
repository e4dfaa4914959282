//go:build faults

package transfer

import (
	"bytes"

	"leasehold.dev/protos/fault"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
)

// misstate makes c wrong before it is sealed, so that its MAC is right.
func misstate(c *brokerv1.Completion) {
	n := len(c.Digests)
	switch fault.At(fault.Completion) {
	case fault.Truncate:
		c.Pages, c.Digests = c.Pages-1, c.Digests[:n-1]
	case fault.Corrupt:
		last := bytes.Clone(c.Digests[n-1])
		last[0] ^= 1
		c.Digests = append(c.Digests[:n-1:n-1], last)
	case fault.Reorder:
		c.Digests = append([][]byte{c.Digests[n-1]}, append(c.Digests[1:n-1:n-1], c.Digests[0])...)
	case fault.Duplicate:
		c.Digests = append(c.Digests[:n-1:n-1], c.Digests[0])
	case fault.StaleEpoch:
		c.Epoch--
	case fault.Drop:
		c.Digests = nil
	}
}
