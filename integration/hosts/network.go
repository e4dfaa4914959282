package hosts

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync/atomic"

	"leasehold.dev/cli/local"
)

// Switch is the address of the namespace in which this process runs, on every network.
const Switch = "10.77.0.1"

// Network is a bridge with hosts on it. One at a time in a process.
type Network struct {
	Hosts []*Host
}

// Host is a namespace with one link to the network.
type Host struct {
	Name string
	IP   string

	port  string // this namespace's end of the link
	relay *relay // nil: the link has no delay
}

var made atomic.Int64 // hosts, ever: their interfaces' names

// New makes a network of so many hosts. The caller closes it, once nothing runs there.
func New(hosts int) (*Network, error) {
	n := &Network{}
	err := run("ip link add name lan type bridge", "ip addr add "+Switch+"/24 dev lan", "ip link set lan up")
	for i := 0; i < hosts && err == nil; i++ {
		err = n.add(fmt.Sprintf("10.77.0.%d", i+2))
	}
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

func (n *Network) add(ip string) error {
	id := made.Add(1)
	h := &Host{Name: fmt.Sprintf("host%d", id), IP: ip, port: fmt.Sprintf("port%d", id)}
	if err := run("ip netns add " + h.Name); err != nil {
		return err
	}
	n.Hosts = append(n.Hosts, h)
	if err := h.tune(); err != nil {
		return err
	}
	return run(
		fmt.Sprintf("ip link add name %s type veth peer name eth0 netns %s", h.port, h.Name),
		fmt.Sprintf("ip link set %s master lan gso_max_segs 1 up", h.port),
		fmt.Sprintf("ip -n %s link set lo up", h.Name),
		fmt.Sprintf("ip -n %s addr add %s/24 dev eth0", h.Name, h.IP),
		fmt.Sprintf("ip -n %s link set eth0 gso_max_segs 1 up", h.Name))
}

// tune sets what a host's TCP does on such links.
func (h *Host) tune() error {
	for setting, value := range map[string]string{
		// BBR, where it is the default, keeps the shortest round trip of the last 10 s: on a link whose delay changes under an
		// open connection it sends next to nothing.
		"tcp_congestion_control": "reno",
		// UCX has no limit of its own for a peer that does not answer over tcp, and the kernel's is a quarter of an hour; this
		// is 6 s, as an RDMA device's is. gRPC's connections have a limit of their own.
		"tcp_retries2": "4",
	} {
		if err := feed(value, "ip netns exec "+h.Name+" tee /proc/sys/net/ipv4/"+setting); err != nil {
			return err
		}
	}
	return nil
}

// Close removes the network.
func (n *Network) Close() error {
	var all []error
	for _, h := range n.Hosts {
		all = append(all, h.Delay(0), run("ip link del "+h.port, "ip netns del "+h.Name))
	}
	n.Hosts = nil
	return errors.Join(append(all, run("ip link del lan"))...)
}

// Place is where a mesh starts processes of h.
func (h *Host) Place() local.Host {
	return local.Host{Enter: []string{"ip", "netns", "exec", h.Name}, IP: h.IP}
}

// Bytes have gone over h's link since it was made: those that h sent, and those that it was sent.
func (h *Host) Bytes() (sent, received uint64, err error) {
	out, err := exec.Command("ip", "-n", h.Name, "-j", "-s", "link", "show", "dev", "eth0").Output()
	if err != nil {
		return 0, 0, fmt.Errorf("counters of %s: %w", h.Name, err)
	}
	var links []struct {
		Stats struct{ RX, TX struct{ Bytes uint64 } } `json:"stats64"`
	}
	if err := json.Unmarshal(out, &links); err != nil || len(links) != 1 {
		return 0, 0, fmt.Errorf("counters of %s: %d links, %w", h.Name, len(links), err)
	}
	return links[0].Stats.TX.Bytes, links[0].Stats.RX.Bytes, nil
}

// run runs commands, one a line, until one fails.
func run(lines ...string) error {
	for _, line := range lines {
		if err := feed("", line); err != nil {
			return err
		}
	}
	return nil
}

func feed(stdin, line string) error {
	f := strings.Fields(line)
	cmd := exec.Command(f[0], f[1:]...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", line, err, strings.TrimSpace(string(out)))
	}
	return nil
}
