package local

import (
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

// fabric is the name that the brokers of a local mesh with mover processes have in common.
const fabric = "local"

// mover keeps a broker's mover process: it ends whenever its broker does, and is started again.
type mover struct {
	line []string // the program and its arguments, on the broker's host
	log  string

	mu      sync.Mutex
	cmd     *exec.Cmd
	stopped bool
	quit    chan struct{}
	wg      sync.WaitGroup
}

func (m *Mesh) keepMover(b Broker) *mover {
	return &mover{log: filepath.Join(m.Dir, "mover-"+b.Name+".log"), quit: make(chan struct{}),
		line: slices.Concat(b.Host.Enter, []string{filepath.Join(m.Bin, "leasehold-mover"), "-model", m.Model, "-backend", m.Backend,
			"-dir", m.BrokerDir(b.Name), "-name", "mover-" + b.Name}, b.Mover)}
}

// start runs the process until stop, again and again.
func (k *mover) start() {
	k.wg.Go(func() {
		for {
			k.once()
			select {
			case <-k.quit:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
}

// once is one life. Why it could not begin is in the log.
func (k *mover) once() {
	log, err := openLog(k.log)
	if err != nil {
		return
	}
	defer log.Close()
	cmd := exec.Command(k.line[0], k.line[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
	k.mu.Lock()
	if k.stopped {
		k.mu.Unlock()
		return
	}
	err = spawn(cmd)
	if err == nil {
		k.cmd = cmd
	}
	k.mu.Unlock()
	if err != nil {
		_, _ = log.WriteString(err.Error() + "\n")
		return
	}
	_ = cmd.Wait() // its broker has gone, or stop has come
}

// stop ends the process. One that does not go within grace is killed.
func (k *mover) stop(grace time.Duration) {
	k.mu.Lock()
	cmd, before := k.cmd, k.stopped
	k.stopped = true
	k.mu.Unlock()
	if before {
		return
	}
	close(k.quit)
	if cmd != nil {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		t := time.AfterFunc(grace, func() { _ = cmd.Process.Kill() })
		defer t.Stop()
	}
	k.wg.Wait()
}

// Mover signals a broker's mover process.
func (m *Mesh) Mover(broker string, sig syscall.Signal) error {
	k := m.movers[broker]
	if k == nil {
		return errors.New("broker " + broker + " has no mover process")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.cmd == nil {
		return errors.New("the mover process of broker " + broker + " never ran")
	}
	return k.cmd.Process.Signal(sig)
}
