package bar

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"leasehold.dev/integration/haul"
)

// transferSizes are the pages' sizes in bytes: small ones, two of models that are served, and a large one.
var transferSizes = []int{32 << 10, 256 << 10, 1 << 20, 1_474_560, 8 << 20}

// transferGroup is ways whose runs alternate.
type transferGroup struct {
	name    string
	inOrder bool
	makers  []haul.Maker
}

func transferGroups(peers string) []transferGroup {
	conns := func(n int, tls bool) haul.Options { return haul.Options{Conns: n, TLS: tls} }
	free, tcp, moon := haul.Nixl(peers, ""), haul.Nixl(peers, "tcp"), haul.Mooncake(peers)
	others := []haul.Maker{tcp.Maker("nixl_tcp_read", "READ"), tcp.Maker("nixl_tcp_write", "WRITE"), moon.Maker("mooncake_read", "READ"),
		moon.Maker("mooncake_write", "WRITE")}
	return []transferGroup{
		{name: "memory", makers: append(oursIn("memory"), haul.Memcpy(1), haul.Memcpy(2), haul.ReadV(), free.Maker("nixl_read", "READ"),
			free.Maker("nixl_write", "WRITE"))},
		{name: "tcp", makers: append([]haul.Maker{haul.Stream(conns(1, false)), haul.Ours("grpc_1", "grpc", conns(1, false)),
			haul.Ours("grpc_raw_1", "grpc_raw", conns(1, false)),
			haul.Stream(conns(2, false)), haul.Ours("grpc_2", "grpc", conns(2, false)),
			haul.Ours("grpc_raw_2", "grpc_raw", conns(2, false))}, others...)},
		{name: "tls", makers: []haul.Maker{haul.Stream(conns(1, true)), haul.Ours("grpc_tls_1", "grpc", conns(1, true)),
			haul.Ours("grpc_raw_tls_1", "grpc_raw", conns(1, true)),
			haul.Stream(conns(2, true)), haul.Ours("grpc_tls_2", "grpc", conns(2, true)),
			haul.Ours("grpc_raw_tls_2", "grpc_raw", conns(2, true))}},
		{name: "in-order", inOrder: true, makers: append([]haul.Maker{free.Maker("nixl_read", "READ"), free.Maker("nixl_write", "WRITE")}, others...)},
		{name: "perftest", inOrder: true, makers: []haul.Maker{haul.PerfTest("ucx_am", "ucp_am_bw", ""), haul.PerfTest("ucx_get", "ucp_get", ""),
			haul.PerfTest("ucx_tcp_am", "ucp_am_bw", "tcp"), haul.PerfTest("ucx_tcp_get", "ucp_get", "tcp")}},
	}
}

// oursIn are the movers that are compared with the machine's memory, as far as they are here.
func oursIn(group string) []haul.Maker {
	var out []haul.Maker
	for _, name := range map[string][]string{"memory": {"shm", "shm_copy", "ucx", "ucx_cma"}}[group] {
		if haul.Has(name) {
			out = append(out, haul.Ours(name, name, haul.Options{}))
		}
	}
	return out
}

// transferSizes are all of them, or the one that is asked for.
func (e *Env) transferSizes() ([]int, error) {
	const name = "LEASEHOLD_PAGE_BYTES"
	if os.Getenv(name) == "" {
		return transferSizes, nil
	}
	n, err := number(name, 0)
	return []int{int(n)}, err
}

// transferReport is the bench's file.
type transferReport struct {
	Time     time.Time         `json:"time"`
	Command  string            `json:"command"`
	Machine  haul.Machine      `json:"machine"`
	Versions map[string]string `json:"versions"`
	Runs     int               `json:"runs"`
	Rows     []haul.Row        `json:"rows"`
	Bars     []transferVerdict `json:"bars"`
}

// runBenchTransfer moves one list of pages by every way, ours beside the machine's own speed and the peers'.
func runBenchTransfer(ctx context.Context, e *Env) (Result, error) {
	defer haul.GrantHugePages()()
	only := os.Getenv("LEASEHOLD_ONLY") // groups, for who works on one
	r := transferReport{Time: time.Now().UTC().Truncate(time.Second), Command: strings.TrimSpace("make bench-transfer " + only), Machine: haul.ThisMachine(),
		Versions: haul.Versions(ctx, e.Peer), Runs: haul.Runs}
	sizes, err := e.transferSizes()
	if err != nil {
		return Result{}, err
	}
	for _, size := range sizes {
		for _, g := range transferGroups(e.Peer) {
			if only != "" && !slices.Contains(strings.Split(only, ","), g.name) {
				continue
			}
			rows := haul.Measure(ctx, haul.Load{PageBytes: size, InOrder: g.inOrder}, g.makers...)
			if err := ctx.Err(); err != nil {
				return Result{}, err
			}
			for _, row := range rows {
				e.sayf("bench-transfer: %s", transferLine(row))
			}
			r.Rows = append(r.Rows, rows...)
		}
	}
	met := true
	for _, b := range transferBars {
		v := b.judge(r.Rows)
		met = met && v.Met
		r.Bars = append(r.Bars, v)
	}
	transferTable(e.Out, &r)
	figures := map[string]any{"bars": r.Bars, "machine": r.Machine}
	for _, row := range r.Rows {
		if row.Error != "" {
			met = false
		}
	}
	dir := filepath.Join(filepath.Dir(e.Bin), "bench")
	file, svg := filepath.Join(dir, "transfer.json"), filepath.Join(dir, "transfer.svg")
	if err := writeReport(file, &r); err != nil {
		return Result{Figures: figures}, err
	}
	if err := haul.Plot(ctx, e.Peer, file, svg); err != nil {
		return Result{Figures: figures}, err
	}
	e.sayf("bench-transfer: wrote build/bench/transfer.json and transfer.svg")
	return Result{Met: met, Figures: figures}, nil
}

func writeReport(file string, r *transferReport) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(b, '\n'), 0o644)
}
