package catalogue

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// stopped is nil when the process does not run because of a signal.
func stopped(pid int) error {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return err
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	if !strings.HasPrefix(rest, "T") {
		return fmt.Errorf("process %d is in state %.1s, not stopped", pid, rest)
	}
	return nil
}

// page is what a path of a process's admin port answers.
func (m *Mesh) page(ctx context.Context, process, path string) (int, string, error) {
	a, err := m.Process(process).Addr(ctx)
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

// metric is one sample of a process's /metrics; 0 when it is not there yet.
func (m *Mesh) metric(ctx context.Context, process, sample string) (float64, error) {
	_, text, err := m.page(ctx, process, "/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), sample+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, nil
}

// metricAbove waits until a sample is above a number.
func (m *Mesh) metricAbove(ctx context.Context, process, sample string, least float64) error {
	return until(ctx, 10*time.Second, func() error {
		v, err := m.metric(ctx, process, sample)
		if err == nil && v <= least {
			err = fmt.Errorf("%s: %s is %v, want above %v", process, sample, v, least)
		}
		return err
	})
}
