package haul

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Plot draws a report as SVG, with the Python that has matplotlib in a peers' folder.
func Plot(ctx context.Context, dir, report, svg string) error {
	script, err := scripts.ReadFile("peers/plot.py")
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "leasehold-plot")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	file := filepath.Join(tmp, "draw.py")
	if err := os.WriteFile(file, script, 0o600); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, filepath.Join(dir, "plot", "bin", "python"), file, report, svg).CombinedOutput(); err != nil {
		return fmt.Errorf("plot: %w: %s", err, tail(string(out)))
	}
	return nil
}
