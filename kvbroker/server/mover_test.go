package server

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"leasehold.dev/kvbroker/drive"
)

// moverProcess is the test binary as the mover process of a broker.
type moverProcess struct {
	*process
	n    *node
	dead bool
}

// moverTransports is what it may use.
const moverTransports = "KVBROKER_TEST_TRANSPORTS"

func init() { helpers["mover"] = moverHelper }

func moverHelper() int {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	err := drive.Run(ctx, drive.Config{Dir: os.Getenv(helperDir), Layout: small, ModelRevision: revision,
		Transports: strings.Split(os.Getenv(moverTransports), ",")})
	if err != nil && ctx.Err() == nil {
		os.Stderr.WriteString("mover: " + err.Error() + "\n")
		return 1
	}
	return 0
}

// startMover gives a broker its mover process, and waits until the broker is ready with it.
// Lines are a faults build's start file.
func startMover(t *testing.T, n *node, lines ...string) *moverProcess {
	t.Helper()
	p := &moverProcess{process: &process{cmd: exec.Command(os.Args[0])}, n: n}
	p.cmd.Env = append(os.Environ(), helperMode+"=mover", helperDir+"="+n.dir, moverTransports+"=posix,cma")
	if len(lines) > 0 {
		dir := filepath.Dir(n.dir) // short enough for a socket
		if err := os.WriteFile(filepath.Join(dir, "start"), []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		p.cmd.Env = append(p.cmd.Env, "LEASEHOLD_FAULTS="+dir)
	}
	p.cmd.Stderr = os.Stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.end)
	eventually(t, "the mover process is ready", func() bool { return n.Ready(t.Context()) == nil })
	return p
}

// end kills the process and reaps it.
func (p *moverProcess) end() {
	if p.dead {
		return
	}
	p.dead = true
	p.cmd.Process.Kill()
	if err := p.cmd.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		p.n.cfg.Log.Error("mover", "error", err)
	}
}
