package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"leasehold.dev/protos/errs"
)

// Addr is where a process serves, as it wrote it to its -addr-file.
type Addr struct {
	GRPC  string `json:"grpc"`
	Admin string `json:"admin"`
	HTTP  string `json:"http,omitempty"` // router only
}

// tailBytes is how much of a log an error carries.
const tailBytes = 2000

// Process is one started program. Its methods may be called from any goroutine.
type Process struct {
	Name string // service/id

	enter    []string // runs path on another host
	path     string
	args     []string
	addrFile string
	logFile  string

	mu     sync.Mutex
	cmd    *exec.Cmd
	addr   Addr          // of the last start; kept for a restart on the same address
	exited chan struct{} // closed when the current run has ended
	err    error         // of the current run, once exited
	killed bool          // the current run, by Kill
	told   bool          // the current run's end is in an error that a caller has
}

// newProcess describes a program and starts nothing. dir gets its log and its address file.
func newProcess(name, path, dir string, args []string) *Process {
	base := filepath.Join(dir, filepath.Base(filepath.Dir(name))+"-"+filepath.Base(name))
	return &Process{Name: name, path: path, args: args, addrFile: base + ".addr.json", logFile: base + ".log"}
}

// Start runs the program. A second run appends to the same log and, where the first served, serves again.
func (p *Process) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exited != nil {
		select {
		case <-p.exited:
		default:
			return errs.New(errs.Invalid, "start %s: it runs already, as process %d", p.Name, p.cmd.Process.Pid)
		}
	}
	if err := os.Remove(p.addrFile); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	log, err := openLog(p.logFile)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	defer log.Close()
	args := append(slices.Clone(p.args), "-addr-file", p.addrFile)
	if p.addr.GRPC != "" {
		args = append(args, "-listen", p.addr.GRPC)
	}
	line := slices.Concat(p.enter, []string{p.path}, args)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
	if err := spawn(cmd); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	exited := make(chan struct{})
	p.cmd, p.exited, p.err, p.killed, p.told = cmd, exited, nil, false, false
	go func() {
		err := cmd.Wait()
		p.mu.Lock()
		p.err = err
		p.mu.Unlock()
		close(exited)
	}()
	return nil
}

// Addr waits until the process serves. It is Unavailable, with the end of its log, when the process ends before.
func (p *Process) Addr(ctx context.Context) (Addr, error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if b, err := os.ReadFile(p.addrFile); err == nil {
			var a Addr
			if err := json.Unmarshal(b, &a); err != nil {
				return Addr{}, fmt.Errorf("%s: %s: %w", p.Name, p.addrFile, err)
			}
			p.mu.Lock()
			p.addr = a
			p.mu.Unlock()
			return a, nil
		}
		select {
		case <-p.Exited():
			return Addr{}, p.Ended("before it served")
		case <-ctx.Done():
			return Addr{}, fmt.Errorf("%s does not serve yet: %w; its log ends:\n%s", p.Name, context.Cause(ctx), p.tail())
		case <-tick.C:
		}
	}
}

func openLog(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

// PID is the process id of the current run.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}

// Exited is closed when the current run has ended.
func (p *Process) Exited() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exited
}

// Err is how the current run ended; nil while it runs and after exit code 0.
func (p *Process) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Ended is the error of a run that should not have ended, with the end of its log. Stop then does not tell of it again.
func (p *Process) Ended(when string) error {
	p.mu.Lock()
	p.told = true
	how := "exit status 0"
	if p.err != nil {
		how = p.err.Error()
	}
	p.mu.Unlock()
	return errs.New(errs.Unavailable, "%s ended %s (%s); its log ends:\n%s", p.Name, when, how, p.tail())
}

// Signal sends sig to the current run; a run that has ended is no error.
func (p *Process) Signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", p.Name, err)
	}
	return nil
}

// Kill ends the run with SIGKILL and waits for it.
func (p *Process) Kill() error {
	p.mu.Lock()
	p.killed = true
	p.mu.Unlock()
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.Exited()
	return nil
}

// Stop asks with SIGTERM, and after grace kills. It returns an error if the program did not end by itself with code 0,
// unless Kill ended it or Ended told of it.
func (p *Process) Stop(grace time.Duration) error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-p.Exited():
		if err := p.Err(); err != nil && !p.accounted() {
			return fmt.Errorf("%s ended with %w; its log ends:\n%s", p.Name, err, p.tail())
		}
		return nil
	case <-t.C:
		return errors.Join(fmt.Errorf("%s did not stop within %v; its log ends:\n%s", p.Name, grace, p.tail()), p.Kill())
	}
}

func (p *Process) accounted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killed || p.told
}

// Log is the path of the program's log.
func (p *Process) Log() string { return p.logFile }

// tail is the log's last whole lines, within tailBytes.
func (p *Process) tail() string {
	b, err := os.ReadFile(p.logFile)
	if err != nil {
		return err.Error()
	}
	if len(b) > tailBytes {
		b = b[len(b)-tailBytes:]
		b = b[bytes.IndexByte(b, '\n')+1:]
	}
	return string(bytes.TrimRight(b, "\n"))
}

// spawner starts every child from one thread that lives as long as this process: the kernel sends Pdeathsig when the
// thread that forked ends, not the process.
var spawner = sync.OnceValue(func() chan func() {
	work := make(chan func())
	go spawnLoop(work)
	return work
})

func spawnLoop(work <-chan func()) {
	runtime.LockOSThread()
	for f := range work {
		f()
	}
}

func spawn(cmd *exec.Cmd) error {
	done := make(chan error, 1)
	spawner() <- func() { done <- cmd.Start() }
	return <-done
}
