package hosts

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"leasehold.dev/cli/local"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

// mover is a way between two hosts.
type mover struct {
	name    string
	is      meshv1.Mover
	args    []string // of the brokers, beside those that they have anyway
	process []string // arguments of the mover process beside each broker; nil: none
}

// movers are the ways that are tested between hosts.
var movers = []mover{
	{"grpc", meshv1.Mover_MOVER_GRPC, nil, nil},
	{"ucx", meshv1.Mover_MOVER_UCX, []string{"-movers", "ucx", "-fabric", "lan"},
		[]string{"-transports", "tcp", "-insecure-tcp", "-insecure-tcp-device", "eth0"}},
}

// each runs a test by every mover.
func each(t *testing.T, f func(*testing.T, mover)) {
	for _, m := range movers {
		t.Run(m.name, func(t *testing.T) { f(t, m) })
	}
}

// attend keeps a mover process beside each broker of c until the test has ended, as a service manager would: it ends with
// its broker, and is started again.
func (m mover) attend(t *testing.T, c *local.Config) {
	if m.process == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	var ended []chan []byte
	for _, b := range c.Brokers {
		line := slices.Concat(b.Host.Enter, []string{filepath.Join(c.Bin, "leasehold-mover"), "-model", c.Model, "-backend", c.Backend,
			"-dir", filepath.Join(c.Dir, "sock", b.Name)}, m.process)
		done := make(chan []byte, 1)
		ended = append(ended, done)
		go func() { done <- again(ctx, line) }()
	}
	t.Cleanup(func() {
		cancel()
		for i, done := range ended {
			if said := <-done; t.Failed() {
				t.Logf("the mover of %s:\n%s", c.Brokers[i].Name, said)
			}
		}
	})
}

// again runs a program whenever it does not run, and returns the end of what it said.
func again(ctx context.Context, line []string) []byte {
	const keep = 4000
	var said bytes.Buffer
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		cmd := exec.CommandContext(ctx, line[0], line[1:]...)
		var now bytes.Buffer
		cmd.Stdout, cmd.Stderr = &now, &now
		if _ = cmd.Run(); !bytes.Contains(now.Bytes(), []byte("attach: dial")) { // there is no broker yet
			said.Write(now.Bytes())
		}
		select {
		case <-ctx.Done():
			return said.Bytes()[max(0, said.Len()-keep):]
		case <-tick.C:
		}
	}
}
