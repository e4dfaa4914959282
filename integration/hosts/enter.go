package hosts

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// Without the tests out when it is 1: for a machine that cannot run them.
	Without = "LEASEHOLD_NO_NETNS"

	inside = "LEASEHOLD_HOSTS_INSIDE"
	names  = "/run/netns" // where ip keeps the names of namespaces
)

// Main is a TestMain: it runs run in network and mount namespaces that are this process's own, and returns the exit status.
func Main(run func() int) int {
	switch {
	case os.Getenv(Without) == "1":
		fmt.Printf("hosts: no test is run, since %s=1 says so: they need root, network namespaces, ip, tc and nft\n", Without)
		return 0
	case os.Getenv(inside) != "":
		if err := settle(); err != nil {
			return fail(err)
		}
		return run()
	}
	for _, tool := range []string{"ip", "tc", "nft"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fail(fmt.Errorf("%w (scripts/deps.sh netns installs it)", err))
		}
	}
	return enter()
}

func fail(err error) int {
	fmt.Fprintf(os.Stderr, "hosts: the tests make network namespaces, which needs root: %v; %s=1 leaves them out\n", err, Without)
	return 1
}

// enter starts this program anew, inside.
func enter() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	var ended *exec.ExitError
	switch {
	case errors.As(err, &ended):
		return max(ended.ExitCode(), 1)
	case err != nil:
		return fail(err)
	}
	return 0
}

// settle gives the names of namespaces a place that only this process sees.
func settle() error {
	if err := os.MkdirAll(names, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("hosts", names, "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount %s: %w", names, err)
	}
	return run("ip link set lo up")
}
