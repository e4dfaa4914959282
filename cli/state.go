package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"leasehold.dev/protos/errs"
)

const stateFile = "state.json"

// state is what `up` leaves for the other commands.
type state struct {
	PID      int    `json:"pid"`
	URL      string `json:"url"`
	Key      string `json:"key"`
	Canary   string `json:"canary_key"` // of a tenant that may name the pair
	Registry string `json:"registry"`
	Identity string `json:"identity"`
	Model    string `json:"model"`
}

// defaultDir is short: a unix socket's path may have 107 bytes at most.
func defaultDir() string {
	if d := os.Getenv("XDG_RUNTIME_DIR"); d != "" {
		return filepath.Join(d, "leasehold")
	}
	return filepath.Join(os.TempDir(), "leasehold-"+strconv.Itoa(os.Getuid()))
}

func orDefault(dir string) string {
	if dir == "" {
		return defaultDir()
	}
	return dir
}

// write is atomic: a reader sees nothing or all of it.
func (s state) write(dir string) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	path := filepath.Join(dir, stateFile)
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	return os.Rename(path+".new", path)
}

// readState is NotFound when no mesh runs from dir.
func readState(dir string) (state, error) {
	var s state
	path := filepath.Join(dir, stateFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return s, errs.New(errs.NotFound, "no mesh runs from %s: start one with leasehold up", dir)
	}
	if err != nil {
		return s, fmt.Errorf("state: %w", err)
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("state: %s: %w", path, err)
	}
	if s.PID <= 0 || syscall.Kill(s.PID, 0) != nil {
		return s, errs.New(errs.NotFound, "the mesh of %s, process %d, is gone: start one with leasehold up", dir, s.PID)
	}
	return s, nil
}
