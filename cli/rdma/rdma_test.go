package rdma_test

import (
	"bytes"
	"maps"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"leasehold.dev/cli/rdma"
)

const unlimited = 1<<64 - 1

// files is a tree with this content.
func files(content map[string]string) fstest.MapFS {
	tree := fstest.MapFS{}
	for name, text := range content {
		tree[name] = &fstest.MapFile{Data: []byte(text + "\n")}
	}
	return tree
}

// roce is a host with one RoCE port, as the mlx5 driver shows it.
var roce = map[string]string{
	"sys/class/infiniband/mlx5_0/ports/1/state":                 "4: ACTIVE",
	"sys/class/infiniband/mlx5_0/ports/1/rate":                  "200 Gb/sec (4X HDR)",
	"sys/class/infiniband/mlx5_0/ports/1/link_layer":            "Ethernet",
	"sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/0":     "IB/RoCE v1",
	"sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/3":     "RoCE v2",
	"sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0":     "ens1f0np0",
	"sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/3":     "ens1f0np0",
	"sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error": "0",
	"sys/class/infiniband/mlx5_0/device/numa_node":              "0",
	"sys/class/net/ens1f0np0/mtu":                               "9000",
	"sys/class/net/ens1f0np0/ecn/roce_np/enable/3":              "1",
	"sys/class/net/ens1f0np0/ecn/roce_rp/enable/3":              "1",
	"sys/devices/system/node/node0/cpulist":                     "0-63",
	"proc/cmdline":                                              "quiet intel_iommu=on iommu=pt",
	"sys/class/iommu/dmar0/x":                                   "",
	"proc/driver/nvidia/gpus/0000:17:00.0/information":          "Model: a GPU",
	"proc/modules": "nvidia_peermem 16384 0 - Live 0x0\nnvidia 1 2 - Live 0x0",
}

func with(changes map[string]string) map[string]string {
	out := maps.Clone(roce)
	for name, text := range changes {
		if text == "" {
			delete(out, name)
		} else {
			out[name] = text
		}
	}
	return out
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	const port = "sys/class/infiniband/mlx5_0/ports/1/"
	infiniband := with(map[string]string{port + "link_layer": "InfiniBand"})
	for _, tt := range []struct {
		name    string
		host    map[string]string
		need    rdma.Need
		fit     bool
		check   string // the point that is not good, if one is
		verdict rdma.Verdict
		text    string
	}{
		{name: "a host as it should be", host: roce, need: rdma.Need{Locked: unlimited}, fit: true},
		{name: "InfiniBand", host: infiniband, need: rdma.Need{Locked: unlimited}, fit: true},
		{"no device", map[string]string{"proc/cmdline": "quiet"}, rdma.Need{Locked: unlimited}, false, "device", rdma.Bad, "none in"},
		{"a port that is down", with(map[string]string{port + "state": "1: DOWN"}), rdma.Need{Locked: unlimited}, false, "device", rdma.Bad, "no active port"},
		{"only RoCE v1", with(map[string]string{port + "gid_attrs/types/3": "IB/RoCE v1"}), rdma.Need{Locked: unlimited}, false, "gid", rdma.Bad, "no RoCE v2"},
		{"a small MTU", with(map[string]string{"sys/class/net/ens1f0np0/mtu": "1500"}), rdma.Need{Locked: unlimited}, true, "mtu", rdma.Warn, "1500"},
		{"no ECN", with(map[string]string{"sys/class/net/ens1f0np0/ecn/roce_np/enable/3": "0", "sys/class/net/ens1f0np0/ecn/roce_rp/enable/3": "0"}),
			rdma.Need{Locked: unlimited}, true, "congestion", rdma.Unknown, "not said"},
		{"symbol errors", with(map[string]string{port + "counters/symbol_error": "17"}), rdma.Need{Locked: unlimited}, true, "counter", rdma.Warn, "symbol_error 17"},
		{"a pool that may not be locked", roce, rdma.Need{PoolBytes: 1 << 30, Locked: 1 << 23}, false, "memlock", rdma.Bad, "8 MiB"},
		{"a pool of unknown size", roce, rdma.Need{Locked: 1 << 23}, true, "memlock", rdma.Warn, "8 MiB"},
		{"two NUMA nodes", with(map[string]string{"sys/devices/system/node/node1/cpulist": "64-127"}), rdma.Need{Locked: unlimited}, true, "numa", rdma.Warn, "node 0 of 2"},
		{"an IOMMU that translates", with(map[string]string{"proc/cmdline": "quiet"}), rdma.Need{Locked: unlimited}, true, "iommu", rdma.Warn, "translates"},
		{"no peer memory", with(map[string]string{"proc/modules": "nvidia 1 2 - Live 0x0"}), rdma.Need{Locked: unlimited}, true, "gpu memory", rdma.Warn, "not loaded"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := rdma.Examine(files(tt.host), tt.need)
			if r.Fit != tt.fit {
				t.Errorf("fit %v, want %v: %+v", r.Fit, tt.fit, r.Points)
			}
			found := false
			for _, p := range r.Points {
				found = found || p.Check == tt.check && p.Verdict == tt.verdict && strings.Contains(p.Found, tt.text)
				if tt.check == "" && p.Verdict != rdma.Good {
					t.Errorf("%+v on a host as it should be", p)
				}
			}
			if tt.check != "" && !found {
				t.Errorf("no %s point of %s with %q: %+v", tt.verdict, tt.check, tt.text, r.Points)
			}
			var out bytes.Buffer
			if err := r.Print(&out); err != nil || strings.Contains(out.String(), "not fit") == tt.fit {
				t.Errorf("Print = %v:\n%s", err, out.String())
			}
		})
	}
}

// The very host that the test runs on: whatever it has, each point has words, and it is fit only with a device.
func TestThisHost(t *testing.T) {
	r := rdma.Examine(os.DirFS("/"), rdma.Need{Locked: unlimited})
	_, err := os.Stat("/sys/class/infiniband")
	if err != nil && r.Fit {
		t.Errorf("fit without a device: %+v", r)
	}
	for _, p := range r.Points {
		if p.Check == "" || p.Found == "" || p.Want == "" || p.Verdict == "" {
			t.Errorf("a point without words: %+v", p)
		}
	}
}
