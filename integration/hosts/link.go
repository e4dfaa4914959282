package hosts

import (
	"fmt"
	"strings"
	"time"
)

// Rate limits h's link to so many Mbit/s in each direction; 0 lifts the limit.
func (h *Host) Rate(mbit int) error {
	ends := []string{"tc qdisc %s dev " + h.port + " root", "ip netns exec " + h.Name + " tc qdisc %s dev eth0 root"}
	for _, end := range ends {
		line := fmt.Sprintf(end, "replace") + fmt.Sprintf(" tbf rate %dmbit burst %dk latency 100ms", mbit, max(16, mbit/2))
		if mbit == 0 {
			line = fmt.Sprintf(end, "del")
		}
		if err := run(line); err != nil {
			return err
		}
	}
	return nil
}

// Delay makes each packet on h's link late by d, in each direction; 0 ends it.
func (h *Host) Delay(d time.Duration) error {
	if h.relay != nil {
		err := h.relay.close()
		h.relay = nil
		if err := first(err, run("ip link del "+h.port+"r", fmt.Sprintf("ip link set %s arp on master lan", h.port))); err != nil {
			return err
		}
	}
	if d == 0 {
		return nil
	}
	near, far := h.port+"r", h.port+"s"
	err := run(
		// Neither end of the relay is a place of this namespace's own: a request for Switch is answered by the bridge alone.
		fmt.Sprintf("ip link set %s nomaster arp off", h.port),
		fmt.Sprintf("ip link add name %s type veth peer name %s", near, far),
		fmt.Sprintf("ip link set %s arp off gso_max_segs 1 up", near),
		fmt.Sprintf("ip link set %s master lan gso_max_segs 1 up", far))
	if err == nil {
		h.relay, err = newRelay(h.port, near, d)
	}
	return err
}

func first(all ...error) error {
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}

// Plug connects h to the network; Unplug pulls its plug out: both sides see at once that there is no link.
func (h *Host) Plug() error { return run("ip link set " + h.port + " up") }

// Unplug undoes Plug.
func (h *Host) Unplug() error { return run("ip link set " + h.port + " down") }

// Rule says what becomes of a packet that arrives.
type Rule string

// Lose drops one packet of a hundred, percent times.
func Lose(percent int) Rule { return Rule(fmt.Sprintf("numgen random mod 100 < %d drop", percent)) }

// Swallow drops every packet of h's, silently.
func Swallow(h *Host) Rule { return Rule("ip saddr " + h.IP + " drop") }

// Reset answers each packet of a connection with h by a reset; those of the other side come through.
func Reset(h *Host) Rule {
	return Rule("ip saddr " + h.IP + " tcp flags & rst == 0 reject with tcp reset")
}

// Arriving sets the rules for what arrives at h, instead of those before.
func (h *Host) Arriving(rules ...Rule) error {
	var b strings.Builder
	b.WriteString("table inet hosts\ndelete table inet hosts\ntable inet hosts {\n chain arriving {\n  type filter hook input priority 0;\n")
	for _, r := range rules {
		fmt.Fprintf(&b, "  iifname \"eth0\" %s\n", r)
	}
	b.WriteString(" }\n}\n")
	return feed(b.String(), "ip netns exec "+h.Name+" nft -f -")
}

// Apart has two hosts treat each other's packets by a rule; nil: as before.
func Apart(a, b *Host, rule func(*Host) Rule) error {
	if rule == nil {
		return first(a.Arriving(), b.Arriving())
	}
	return first(a.Arriving(rule(b)), b.Arriving(rule(a)))
}
