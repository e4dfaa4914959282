package scenario

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Admin reads a path of a process's admin port.
func (st *Stage) Admin(ctx context.Context, process, path string) (status int, body string, err error) {
	a, err := st.Process(process).Addr(ctx)
	if err != nil {
		return 0, "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+a.Admin+path, nil)
	if err != nil {
		return 0, "", err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, string(b), err
}

// Samples are a process's metrics: the value of each name with its labels.
func (st *Stage) Samples(ctx context.Context, process string) (map[string]float64, error) {
	_, text, err := st.Admin(ctx, process, "/metrics")
	if err != nil {
		return nil, err
	}
	return samples(text), nil
}

// samples reads Prometheus' text form; a label's value may have blanks.
func samples(text string) map[string]float64 {
	out := map[string]float64{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || line[0] == '#' {
			continue
		}
		if v, err := strconv.ParseFloat(line[at+1:], 64); err == nil {
			out[line[:at]] = v
		}
	}
	return out
}

// alarms are the counters whose growth means that a guard or a detector has spoken.
var alarms = []string{"leasehold_broker_incidents_total", "leasehold_worker_faults_total", "leasehold_router_disagreements_total",
	"leasehold_boundary_incidents_total"}

// Alarms are the samples of all alarms, each after its process's name and a blank.
func (st *Stage) Alarms(ctx context.Context) (map[string]float64, error) {
	out := map[string]float64{}
	for _, p := range st.Processes() {
		all, err := st.Samples(ctx, p.Name)
		if err != nil {
			return nil, err
		}
		for name, v := range all {
			if slices.ContainsFunc(alarms, func(a string) bool { return strings.HasPrefix(name, a) }) {
				out[p.Name+" "+name] = v
			}
		}
	}
	return out, nil
}

// Rose names the alarms that grew, in order.
func Rose(before, after map[string]float64) (red []string) {
	for name, n := range after {
		if n > before[name] {
			red = append(red, name)
		}
	}
	slices.Sort(red)
	return red
}
