package bar

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"leasehold.dev/protos/errs"
)

// runFuzz runs scripts/fuzz.sh, whose last line is a bar's, for a minute a target.
func runFuzz(ctx context.Context, e *Env) (r Result, err error) {
	work, err := exec.CommandContext(ctx, "go", "env", "GOWORK").Output()
	if err != nil {
		return r, fmt.Errorf("go env GOWORK: %w", err)
	}
	script := filepath.Join(filepath.Dir(strings.TrimSpace(string(work))), "scripts", "fuzz.sh")
	cmd := exec.CommandContext(ctx, script, "1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) } // what it started, too
	cmd.WaitDelay = 10 * time.Second
	out, failed := cmd.CombinedOutput()
	e.sayf("%s", bytes.TrimSpace(out))
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	if err := json.Unmarshal(lines[len(lines)-1], &r); err != nil {
		return r, fmt.Errorf("%s: %w", script, errors.Join(err, failed))
	}
	return r, errs.Mark(failed, errs.Internal)
}
