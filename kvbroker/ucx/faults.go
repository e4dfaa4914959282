//go:build faults

package ucx

import "leasehold.dev/protos/fault"

// take appends what the core wants done, with the point mover/offer.
func take(c *core, out []command) []command {
	list := c.commands
	c.commands = nil
	for _, x := range list {
		if x.kind != send {
			out = append(out, x)
			continue
		}
		switch fault.At(fault.MoverOffer) {
		case fault.Drop:
			c.sent(x.tag, 0)
		case fault.Duplicate:
			again := x
			again.tag = 0 // nobody's
			out = append(out, x, again)
		case fault.Truncate:
			x.header.place++
			out = append(out, x)
		case fault.Corrupt:
			x.header.length--
			out = append(out, x)
		default:
			out = append(out, x)
		}
	}
	return out
}

// arrived passes a page that has come, before it is digested, with the point mover/read.
func arrived(page []byte) {
	switch fault.At(fault.MoverRead) {
	case fault.Corrupt:
		page[fault.N(fault.MoverRead)%len(page)] ^= 0x10
	case fault.Truncate:
		clear(page[len(page)/2:])
	}
}
