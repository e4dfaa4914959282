package bar

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"leasehold.dev/integration/haul"
)

// transferBar is one ratio that must hold for scattered pages of each size.
type transferBar struct {
	name     string
	ours     []string // the best of these rows
	verified bool     // at our rate with its proof
	peers    []string // against the best of these
	sizes    []int
	atLeast  float64
}

var (
	fromQuarterMiB = transferSizes[1:]
	tcpPeers       = []string{"nixl_tcp_read", "nixl_tcp_write", "mooncake_read", "mooncake_write"}
	transferBars   = []transferBar{
		// The mover that digests while it copies does more than copying: its rate counts for both.
		{"shm copy, of memcpy", []string{"shm", "shm_copy"}, false, []string{"memcpy"}, fromQuarterMiB, 0.95},
		{"shm verified, of memcpy", []string{"shm"}, true, []string{"memcpy"}, fromQuarterMiB, 0.87},
		{"shm verified, of nixl read", []string{"shm"}, true, []string{"nixl_read"}, []int{32 << 10, 1 << 20}, 1.3},
		{"ucx, of nixl at 1 MiB", []string{"ucx", "ucx_cma"}, false, []string{"nixl_read", "nixl_write"}, []int{1 << 20}, 0.9},
		{"ucx, of nixl at 32 KiB", []string{"ucx", "ucx_cma"}, false, []string{"nixl_read", "nixl_write"}, []int{32 << 10}, 2},
		{"grpc, of tcp on 1 connection", []string{"grpc_1", "grpc_raw_1"}, false, []string{"tcp_1"}, transferSizes, 0.7},
		{"grpc, of tcp on 2 connections", []string{"grpc_2", "grpc_raw_2"}, false, []string{"tcp_2"}, transferSizes, 0.7},
		{"grpc, of the best peer over tcp", []string{"grpc_1", "grpc_2", "grpc_raw_1", "grpc_raw_2"}, false, tcpPeers, transferSizes, 1.1},
		{"grpc tls 1.3, of tls 1.3 on 1 connection", []string{"grpc_tls_1", "grpc_raw_tls_1"}, false, []string{"tls13_1"}, transferSizes, 0.8},
		{"grpc tls 1.3, of tls 1.3 on 2 connections", []string{"grpc_tls_2", "grpc_raw_tls_2"}, false, []string{"tls13_2"}, transferSizes, 0.8},
	}
)

// transferVerdict is what became of a bar. Its ratio is the worst of the sizes'.
type transferVerdict struct {
	Bar     string             `json:"bar"`
	Met     bool               `json:"met"`
	AtLeast float64            `json:"at_least"`
	Ratio   float64            `json:"ratio"`
	Ratios  map[string]float64 `json:"ratios,omitempty"`  // by page size: the median of the runs' ratios
	Ways    map[string]string  `json:"ways,omitempty"`    // by page size: which of ours it was, where there are several
	Missing string             `json:"missing,omitempty"` // rows that were not measured, or failed
}

func (b transferBar) judge(rows []haul.Row) transferVerdict {
	v := transferVerdict{Bar: b.name, AtLeast: b.atLeast, Ratios: map[string]float64{}, Ways: map[string]string{}}
	var missing []string
	for _, size := range b.sizes {
		ours, peer := best(rows, size, b.ours), best(rows, size, b.peers)
		if ours == nil || peer == nil || b.verified && len(ours.Proofs) == 0 {
			missing = append(missing, pageSize(size))
			continue
		}
		rate := ours.Runs
		if b.verified {
			rate = ours.Proofs
		}
		if len(b.ours) > 1 {
			v.Ways[pageSize(size)] = ours.Way
		}
		n := ratio(rate, peer.Runs)
		if v.Ratios[pageSize(size)] = n; len(v.Ratios) == 1 || n < v.Ratio {
			v.Ratio = n
		}
	}
	if missing != nil {
		v.Missing = fmt.Sprintf("%s or %s at %s", strings.Join(b.ours, ", "), strings.Join(b.peers, ", "), strings.Join(missing, ", "))
	}
	v.Met = missing == nil && v.Ratio >= b.atLeast
	return v
}

// best is the fastest of the ways with scattered pages of a size; nil when one of them is missing.
func best(rows []haul.Row, size int, ways []string) *haul.Row {
	var out *haul.Row
	for _, way := range ways {
		found := false
		for i := range rows {
			r := &rows[i]
			if r.Way == way && r.PageBytes == size && r.Order == "scattered" && r.Error == "" {
				found = true
				if out == nil || r.Moved > out.Moved {
					out = r
				}
			}
		}
		if !found {
			return nil
		}
	}
	return out
}

func pageSize(n int) string {
	if n < 1<<20 {
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%.3g MiB", float64(n)/(1<<20))
}

func transferLine(r haul.Row) string {
	head := fmt.Sprintf("%-17s %8s %-9s", r.Way, pageSize(r.PageBytes), r.Order)
	switch {
	case r.Error != "":
		return head + " " + r.Error
	case r.Verified > 0:
		return fmt.Sprintf("%s %6.2f GB/s (%.2f to %.2f), with its proof %.2f", head, r.Moved, r.Least, r.Most, r.Verified)
	}
	return fmt.Sprintf("%s %6.2f GB/s (%.2f to %.2f)", head, r.Moved, r.Least, r.Most)
}

// transferTable has a line a way and a column a size.
func transferTable(out io.Writer, r *transferReport) {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprint(w, "\nGB/s\torder\tchecked")
	for _, size := range transferSizes {
		fmt.Fprintf(w, "\t%s", pageSize(size))
	}
	fmt.Fprintln(w)
	cells := map[[2]string]map[int]string{}
	for _, row := range r.Rows {
		k := [2]string{row.Way, row.Order}
		if cells[k] == nil {
			cells[k] = map[int]string{}
		}
		cells[k][row.PageBytes] = cell(row)
	}
	for _, row := range r.Rows {
		k := [2]string{row.Way, row.Order}
		if cells[k] == nil {
			continue // printed
		}
		fmt.Fprintf(w, "%s\t%s\t%s", row.Way, row.Order, checked(row))
		for _, size := range transferSizes {
			fmt.Fprintf(w, "\t%s", cells[k][size])
		}
		fmt.Fprintln(w)
		cells[k] = nil
	}
	fmt.Fprintln(w, "\nbar\tmet\tat least\tratio")
	for _, b := range r.Bars {
		if len(b.Ratios) == 0 {
			fmt.Fprintf(w, "%s\t%v\t%.2f\tmissing\n", b.Bar, b.Met, b.AtLeast)
			continue
		}
		some := ""
		if b.Missing != "" {
			some = " (of some sizes)"
		}
		fmt.Fprintf(w, "%s\t%v\t%.2f\t%.2f%s\n", b.Bar, b.Met, b.AtLeast, b.Ratio, some)
	}
	_ = w.Flush()
}

func cell(r haul.Row) string {
	switch {
	case r.Error != "":
		return "failed"
	case r.Verified > 0:
		return fmt.Sprintf("%.2f (%.2f)", r.Moved, r.Verified)
	}
	return fmt.Sprintf("%.2f", r.Moved)
}

func checked(r haul.Row) string {
	if len(r.Checked) > 10 {
		return "not"
	}
	return r.Checked
}
