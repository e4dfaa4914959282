package haul

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// child is a process at the other end of a way. It is told things by lines, and answers each with a line.
type child struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
	errs  bytes.Buffer
}

// patience is how long a child may take to get ready, or for one answer.
const patience = 2 * time.Minute

func startChild(ctx context.Context, env []string, program string, args ...string) (*child, error) {
	c := &child{cmd: exec.CommandContext(ctx, program, args...)}
	c.cmd.Env = append(os.Environ(), env...)
	c.cmd.Stderr = &c.errs
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	c.cmd.Cancel = c.kill
	c.cmd.WaitDelay = 5 * time.Second
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.lines = bufio.NewScanner(out)
	c.lines.Buffer(nil, 1<<20)
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	return c, nil
}

// kill ends the child and what it has started.
func (c *child) kill() error { return c.signal(syscall.SIGKILL) }

func (c *child) signal(s syscall.Signal) error { return syscall.Kill(-c.cmd.Process.Pid, s) }

// line is the next line that starts as asked; others are the program's own talk.
func (c *child) line(prefix string) (string, error) {
	late := time.AfterFunc(patience, func() { _ = c.kill() })
	defer late.Stop()
	for c.lines.Scan() {
		if s, ok := strings.CutPrefix(c.lines.Text(), prefix); ok {
			return strings.TrimSpace(s), nil
		}
	}
	return "", fmt.Errorf("%s ended while %q was awaited: %s", c.cmd.Args[0], prefix, tail(c.errs.String()))
}

func (c *child) ask(what, prefix string) (string, error) {
	if _, err := io.WriteString(c.in, what+"\n"); err != nil {
		return "", fmt.Errorf("%s: %w: %s", c.cmd.Args[0], err, tail(c.errs.String()))
	}
	return c.line(prefix)
}

// close ends the child's input, which ends it, and waits.
func (c *child) close() error {
	_ = c.in.Close()
	late := time.AfterFunc(10*time.Second, func() { _ = c.kill() })
	defer late.Stop()
	for c.lines.Scan() { // Wait closes the pipe
	}
	return c.cmd.Wait()
}

// tail is the end of what a program complained about.
func tail(s string) string {
	s = strings.TrimSpace(s)
	return s[max(0, len(s)-300):]
}

const sendingEnv = "LEASEHOLD_HAUL_SENDING"

// sending is what the source's process is told.
type sending struct {
	Kind    string  `json:"kind"` // memory, stream, or a mover's name
	Load    Load    `json:"load"`
	Options Options `json:"options"`
}

// Options of a way.
type Options struct {
	TLS   bool `json:"tls,omitempty"`   // 1.3
	Conns int  `json:"conns,omitempty"` // connections
}

// Address is where a source's process is found.
type Address struct {
	Net  string `json:"net,omitempty"`  // host:port, or a path
	Cert []byte `json:"cert,omitempty"` // DER, of a TLS server
	// Data and DataCert are the same of raw lanes.
	Data     string `json:"data,omitempty"`
	DataCert []byte `json:"data_cert,omitempty"`
	File     string `json:"file,omitempty"` // the pool, to be opened for reading
	PID      int    `json:"pid"`
	Base     uint64 `json:"base"` // of the pool in its memory
}

// startSending starts this program again as the source's process.
func startSending(ctx context.Context, s sending) (*child, Address, error) {
	var a Address
	spec, err := json.Marshal(s)
	if err != nil {
		return nil, a, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, a, err
	}
	c, err := startChild(ctx, []string{sendingEnv + "=" + string(spec)}, self)
	if err != nil {
		return nil, a, err
	}
	line, err := c.line("ready ")
	if err == nil {
		err = json.Unmarshal([]byte(line), &a)
	}
	if err != nil {
		_ = c.kill()
		_ = c.close()
		return nil, a, err
	}
	return c, a, nil
}
