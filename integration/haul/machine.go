package haul

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine is what the rows were measured on.
type Machine struct {
	CPU    string  `json:"cpu"`
	Cores  int     `json:"cores"`
	Memory uint64  `json:"memory_bytes"`
	Kernel string  `json:"kernel"`
	Load   float64 `json:"load_average"`  // of the last minute, before the first run
	Huge   string  `json:"shmem_enabled"` // when pools have huge pages
}

// ThisMachine looks at the one that we run on.
func ThisMachine() Machine {
	m := Machine{Cores: runtime.NumCPU()}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = "Linux " + unix.ByteSliceToString(u.Release[:])
	}
	var s unix.Sysinfo_t
	if unix.Sysinfo(&s) == nil {
		m.Memory = s.Totalram * uint64(s.Unit)
	}
	cpus, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(cpus)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
			m.CPU = strings.TrimSpace(v)
			break
		}
	}
	m.Huge = shmemEnabled()
	load, _ := os.ReadFile("/proc/loadavg")
	if f := strings.Fields(string(load)); len(f) > 0 {
		m.Load, _ = strconv.ParseFloat(f[0], 64)
	}
	return m
}

const shmemHuge = "/sys/kernel/mm/transparent_hugepage/shmem_enabled"

// shmemEnabled is the chosen one of the setting's values, which the kernel puts in brackets.
func shmemEnabled() string {
	b, _ := os.ReadFile(shmemHuge)
	_, rest, _ := strings.Cut(string(b), "[")
	value, _, _ := strings.Cut(rest, "]")
	return value
}

// GrantHugePages lets this host give huge pages to memory that asks for them, as docs/rdma.md tells operators to, until the
// returned function puts the setting back. Peers' memory is anonymous, and hosts let that have them. Without the right to change the
// setting nothing changes, and the machine's description says so.
func GrantHugePages() (restore func()) {
	before := shmemEnabled()
	if before != "never" || os.WriteFile(shmemHuge, []byte("advise"), 0) != nil {
		return func() {}
	}
	return func() { _ = os.WriteFile(shmemHuge, []byte(before), 0) }
}

// Versions are those of what was measured. A peer that is not installed has none.
func Versions(ctx context.Context, dir string) map[string]string {
	v := map[string]string{"go": runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if d.Path == "google.golang.org/grpc" {
				v["grpc-go"] = d.Version
			}
		}
	}
	for _, p := range []struct{ env, name string }{{"nixl", "nixl"}, {"nixl", "nixl-cu13"}, {"mooncake", "mooncake-transfer-engine-non-cuda"}} {
		py := "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"
		if out, err := exec.CommandContext(ctx, filepath.Join(dir, p.env, "bin", "python"), "-c", py, p.name).Output(); err == nil {
			v[p.name] = strings.TrimSpace(string(out))
		}
	}
	if out, err := exec.CommandContext(ctx, "ucx_info", "-v").Output(); err == nil {
		first, _, _ := strings.Cut(string(out), "\n")
		v["ucx"] = strings.TrimSpace(strings.TrimPrefix(first, "#"))
	}
	return v
}
