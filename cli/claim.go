package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"leasehold.dev/protos/errs"
)

// lockFile marks a folder as one that up may empty, and is locked while a run uses it.
const lockFile = "up.lock"

// claim takes dir for one run, made when absent and emptied of what a killed run left. It is refused while another run
// has it, and when it holds anything that up did not put there. Closing the file ends the claim.
func claim(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("up: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("up: %w", err)
	}
	path := filepath.Join(dir, lockFile)
	if _, err := os.Stat(path); err != nil && len(entries) > 0 {
		return nil, errs.New(errs.Invalid, "up: %s holds %d other files, such as %s: name an empty folder, or one to make", dir, len(entries), entries[0].Name())
	}
	lock, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("up: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(taken(dir, err), lock.Close())
	}
	if err := empty(dir); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

func taken(dir string, err error) error {
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return fmt.Errorf("up: lock of %s: %w", dir, err)
	}
	st, err := readState(dir)
	if err != nil {
		return errs.New(errs.Invalid, "up: a mesh starts or stops in %s now", dir)
	}
	return errs.New(errs.Invalid, "up: a mesh runs from %s already, at %s, process %d", dir, st.URL, st.PID)
}

// empty leaves the lock only.
func empty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("up: %w", err)
	}
	for _, e := range entries {
		if e.Name() == lockFile {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("up: %w", err)
		}
	}
	return nil
}
