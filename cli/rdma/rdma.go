package rdma

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Verdict on one point.
type Verdict string

// Verdicts. Only Bad makes a host unfit.
const (
	Good    Verdict = "good"
	Warn    Verdict = "warn" // works, slower or less safely than it could
	Bad     Verdict = "bad"
	Unknown Verdict = "unknown" // the file is not there: the kernel or the driver does not say
)

// Point is one thing that was looked at.
type Point struct {
	Check   string  `json:"check"`
	On      string  `json:"on,omitempty"` // device, port or interface
	Found   string  `json:"found"`
	Want    string  `json:"want"`
	Verdict Verdict `json:"verdict"`
}

// Report is everything that was looked at.
type Report struct {
	Fit    bool    `json:"fit"` // some port is active, and nothing is bad
	Points []Point `json:"points"`
}

// Need is what the host must be good for.
type Need struct {
	PoolBytes uint64 // of the largest broker pool on this host; 0: not known
	Locked    uint64 // most bytes that this process may lock (RLIMIT_MEMLOCK)
}

// examination collects points of one host.
type examination struct {
	root fs.FS
	Report
}

// Examine reads root, which is the host's "/".
func Examine(root fs.FS, n Need) Report {
	x := &examination{root: root}
	active := x.devices()
	x.locked(n)
	x.memory(active)
	x.gpu()
	x.Fit = len(active) > 0 && !slices.ContainsFunc(x.Points, func(p Point) bool { return p.Verdict == Bad })
	return x.Report
}

func (x *examination) add(check, on, found, want string, v Verdict) {
	x.Points = append(x.Points, Point{check, on, found, want, v})
}

// read is a file's text without the space around it.
func (x *examination) read(names ...string) (string, bool) {
	b, err := fs.ReadFile(x.root, path.Join(names...))
	return strings.TrimSpace(string(b)), err == nil
}

func (x *examination) list(dir string) []string {
	entries, err := fs.ReadDir(x.root, dir)
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

const devicesDir = "sys/class/infiniband"

// devices returns those with an active port.
func (x *examination) devices() (active []string) {
	names := x.list(devicesDir)
	if len(names) == 0 {
		x.add("device", "", "none in /"+devicesDir, "a device with an active port", Bad)
	}
	for _, d := range names {
		for _, port := range x.list(path.Join(devicesDir, d, "ports")) {
			if x.port(d, port) && !slices.Contains(active, d) {
				active = append(active, d)
			}
		}
	}
	if len(names) > 0 && len(active) == 0 {
		x.add("device", "", fmt.Sprintf("%d devices, no active port", len(names)), "a device with an active port", Bad)
	}
	return active
}

// port looks at one, and says whether it is active.
func (x *examination) port(device, port string) bool {
	dir, on := path.Join(devicesDir, device, "ports", port), device+"/"+port
	state, _ := x.read(dir, "state")
	if !strings.HasSuffix(state, "ACTIVE") || strings.HasSuffix(state, "INACTIVE") {
		x.add("port", on, "state "+orNone(state), "ACTIVE", Warn)
		return false
	}
	rate, _ := x.read(dir, "rate")
	x.add("port", on, "state "+state+", "+orNone(rate), "ACTIVE", Good)
	switch layer, _ := x.read(dir, "link_layer"); layer {
	case "Ethernet":
		x.roce(device, port, on)
	case "InfiniBand":
		x.add("link layer", on, layer, "InfiniBand or Ethernet", Good)
	default:
		x.add("link layer", on, orNone(layer), "InfiniBand or Ethernet", Unknown)
	}
	x.counters(dir, on)
	return true
}

// roce looks for a version 2 address, and at the network interface under the port.
func (x *examination) roce(device, port, on string) {
	dir := path.Join(devicesDir, device, "ports", port, "gid_attrs")
	best, nic := "", ""
	for _, i := range x.list(path.Join(dir, "types")) {
		kind, _ := x.read(dir, "types", i)
		if n, ok := x.read(dir, "ndevs", i); ok && nic == "" {
			nic = n
		}
		if kind == "RoCE v2" && best == "" {
			best = i
		}
	}
	if best == "" {
		x.add("gid", on, "no RoCE v2 address", "one, with an IP address of its interface: version 1 is not routed and has no ECN", Bad)
	} else {
		x.add("gid", on, "RoCE v2 at index "+best, "RoCE v2 (UCX_IB_GID_INDEX when it picks another)", Good)
	}
	if nic == "" {
		x.add("interface", on, "not said", "the network interface of the port", Unknown)
		return
	}
	mtu, _ := x.read("sys/class/net", nic, "mtu")
	switch n, err := strconv.Atoi(mtu); {
	case err != nil:
		x.add("mtu", nic, orNone(mtu), "4200 or more", Unknown)
	case n < 4200:
		x.add("mtu", nic, mtu, "4200 or more, so that the RDMA MTU is 4096; the same on every switch", Warn)
	default:
		x.add("mtu", nic, mtu, "4200 or more", Good)
	}
	x.lossless(nic)
}

// lossless looks at ECN and PFC as far as the driver says: either keeps a congested port from dropping.
func (x *examination) lossless(nic string) {
	var on []string
	for _, side := range []string{"roce_np", "roce_rp"} {
		for _, prio := range x.list(path.Join("sys/class/net", nic, "ecn", side, "enable")) {
			if v, _ := x.read("sys/class/net", nic, "ecn", side, "enable", prio); v == "1" {
				on = append(on, side+" priority "+prio)
			}
		}
	}
	if len(on) == 0 {
		x.add("congestion", nic, "ECN is not said to be on", "ECN on the RDMA priority at both ends, PFC on the switch", Unknown)
		return
	}
	slices.Sort(on)
	x.add("congestion", nic, "ECN on: "+strings.Join(on, ", "), "ECN on the RDMA priority at both ends", Good)
}

// counters that say that the link loses.
func (x *examination) counters(dir, on string) {
	for _, c := range []string{"symbol_error", "link_downed", "port_rcv_errors", "port_xmit_discards"} {
		v, ok := x.read(dir, "counters", c)
		n, err := strconv.ParseUint(v, 10, 64)
		if ok && err == nil && n > 0 {
			x.add("counter", on, c+" "+v, "0, or not growing", Warn)
		}
	}
}

// locked compares what may be locked with what registering the pool locks.
func (x *examination) locked(n Need) {
	const unlimited = 1<<64 - 1
	found := fmt.Sprintf("%d MiB may be locked", n.Locked>>20)
	if n.Locked == unlimited {
		found = "any amount may be locked"
	}
	switch {
	case n.Locked == unlimited:
		x.add("memlock", "", found, "the pool, which is registered whole", Good)
	case n.PoolBytes > 0 && n.Locked < n.PoolBytes:
		x.add("memlock", "", found, fmt.Sprintf("%d MiB, the pool (LimitMEMLOCK=infinity, or CAP_IPC_LOCK)", (n.PoolBytes+1<<20-1)>>20), Bad)
	case n.PoolBytes > 0:
		x.add("memlock", "", found, fmt.Sprintf("%d MiB, the pool", (n.PoolBytes+1<<20-1)>>20), Good)
	default:
		x.add("memlock", "", found, "the pool, which is registered whole (LimitMEMLOCK=infinity, or CAP_IPC_LOCK)", Warn)
	}
}

// memory looks at how far devices are from memory, and at what stands between them.
func (x *examination) memory(active []string) {
	for _, d := range active {
		node, ok := x.read(devicesDir, d, "device/numa_node")
		nodes := 0
		for _, n := range x.list("sys/devices/system/node") {
			if _, err := strconv.Atoi(strings.TrimPrefix(n, "node")); err == nil && strings.HasPrefix(n, "node") {
				nodes++
			}
		}
		switch {
		case !ok || node == "-1":
			x.add("numa", d, "node not said", "broker and workers on the node of the device", Unknown)
		case nodes > 1:
			x.add("numa", d, fmt.Sprintf("node %s of %d", node, nodes), "broker, mover and workers bound to node "+node, Warn)
		default:
			x.add("numa", d, "the only node", "broker and workers on the node of the device", Good)
		}
	}
	line, ok := x.read("proc/cmdline")
	switch {
	case !ok:
		x.add("iommu", "", "not said", "passthrough (iommu=pt), or off", Unknown)
	case strings.Contains(line, "iommu=pt") || len(x.list("sys/class/iommu")) == 0:
		x.add("iommu", "", "passthrough or off", "passthrough or off", Good)
	default:
		x.add("iommu", "", "translates", "passthrough (iommu=pt): each access is translated otherwise", Warn)
	}
}

// gpu asks whether GPU memory can be registered, where there is a GPU.
func (x *examination) gpu() {
	if len(x.list("proc/driver/nvidia/gpus")) == 0 {
		return
	}
	modules, err := fs.ReadFile(x.root, "proc/modules")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		x.add("gpu memory", "", "modules not listed", "nvidia_peermem, or a kernel with dma-buf", Unknown)
	case slices.ContainsFunc(strings.Split(string(modules), "\n"), func(l string) bool { return strings.HasPrefix(l, "nvidia_peermem ") }):
		x.add("gpu memory", "", "nvidia_peermem is loaded", "nvidia_peermem, or a kernel with dma-buf", Good)
	default:
		x.add("gpu memory", "", "nvidia_peermem is not loaded", "nvidia_peermem, or a kernel with dma-buf (5.12) and the open driver: pages are staged in host memory otherwise", Warn)
	}
}

func orNone(s string) string {
	if s == "" {
		return "not said"
	}
	return s
}
