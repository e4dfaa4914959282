package attach

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"leasehold.dev/protos/errs"
)

// Names of the sockets in a broker's runtime directory.
const (
	SocketName = "attach.sock"
	WorkerName = "worker.sock"
)

// PrepareDir makes the broker's runtime directory, or takes an existing one that is a directory of this user with mode
// 0700. Any other is refused: a wider one would let others replace the sockets.
func PrepareDir(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return errs.New(errs.Invalid, "runtime directory: %w", err)
	}
	return CheckDir(dir)
}

// CheckDir says what is wrong with a runtime directory.
func CheckDir(dir string) error {
	st, err := os.Lstat(dir)
	if err != nil {
		return errs.New(errs.Unavailable, "runtime directory: %w", err)
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	switch {
	case !st.IsDir():
		return errs.New(errs.Denied, "runtime directory %s: it is a %v", dir, st.Mode().Type())
	case st.Mode().Perm() != 0o700:
		return errs.New(errs.Denied, "runtime directory %s: mode %#o, want 0700", dir, st.Mode().Perm())
	case !ok || int(sys.Uid) != os.Geteuid():
		return errs.New(errs.Denied, "runtime directory %s: not owned by uid %d", dir, os.Geteuid())
	}
	return nil
}

// removeStale unlinks a socket that an earlier broker left behind. Anything that is no socket stays.
func removeStale(path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.Mode().Type() != fs.ModeSocket {
		return errs.New(errs.Denied, "%s: it is a %v, not a socket", filepath.Base(path), st.Mode().Type())
	}
	return os.Remove(path)
}
