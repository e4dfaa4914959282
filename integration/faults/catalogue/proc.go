package catalogue

import (
	"context"
	"fmt"
	"os"
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

// metric is one sample of a process's /metrics; 0 when it is not there yet.
func (m *Mesh) metric(ctx context.Context, process, sample string) (float64, error) {
	all, err := m.Samples(ctx, process)
	return all[sample], err
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
