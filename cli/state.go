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

// state is what `up` leaves for the other commands.
type state struct {
	PID      int    `json:"pid"`
	URL      string `json:"url"`
	Key      string `json:"key"`
	Registry string `json:"registry"`
	Identity string `json:"identity"`
}

// defaultDir is short: a unix socket's path may have 107 bytes at most.
func defaultDir() string {
	if d := os.Getenv("XDG_RUNTIME_DIR"); d != "" {
		return filepath.Join(d, "leasehold")
	}
	return filepath.Join(os.TempDir(), "leasehold-"+strconv.Itoa(os.Getuid()))
}

func (s state) write(dir string) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	return os.WriteFile(filepath.Join(dir, "state.json"), b, 0o600)
}

// readState is NotFound when no mesh runs from dir.
func readState(dir string) (state, error) {
	var s state
	b, err := os.ReadFile(filepath.Join(dir, "state.json"))
	if errors.Is(err, os.ErrNotExist) {
		return s, errs.New(errs.NotFound, "no mesh runs from %s: start one with leasehold up", dir)
	}
	if err != nil {
		return s, fmt.Errorf("state: %w", err)
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("state: %w", err)
	}
	if syscall.Kill(s.PID, 0) != nil {
		return s, errs.New(errs.NotFound, "the mesh of %s, process %d, is gone: start one with leasehold up", dir, s.PID)
	}
	return s, nil
}

// target is where chat and models go: a mesh of this host, unless told otherwise.
type target struct {
	Dir string `help:"Folder of the mesh that up runs." placeholder:"DIR"`
	URL string `help:"Router's address, instead of a mesh of this host." placeholder:"URL"`
	Key string `help:"API key." env:"LEASEHOLD_API_KEY" placeholder:"KEY"`
}

func (t target) find() (url, key string, err error) {
	if t.URL != "" {
		if t.Key == "" {
			return "", "", errs.New(errs.Invalid, "--url needs a key: --key or LEASEHOLD_API_KEY")
		}
		return t.URL, t.Key, nil
	}
	dir := t.Dir
	if dir == "" {
		dir = defaultDir()
	}
	s, err := readState(dir)
	if t.Key != "" {
		s.Key = t.Key
	}
	return s.URL, s.Key, err
}
