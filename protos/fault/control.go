//go:build faults

package fault

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// Environ names the folder of the control sockets.
const Environ = "LEASEHOLD_FAULTS"

// Control is the control socket of this process.
type Control struct {
	kit *kit
	ln  net.Listener
	wg  sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{} // nil: closed
}

// Listen carries out the start file and opens the control socket that the environment asks for; nil when it asks for none.
// The caller closes it.
func Listen() (*Control, error) {
	dir := os.Getenv(Environ)
	if dir == "" {
		return nil, nil
	}
	return own.listen(dir, strconv.Itoa(os.Getpid()))
}

func (k *kit) listen(dir, name string) (*Control, error) {
	lines, err := os.ReadFile(filepath.Join(dir, "start"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("fault: %w", err)
	}
	for line := range strings.Lines(string(lines)) {
		if answer := k.do(line); answer != "ok" {
			return nil, fmt.Errorf("fault: start file: %q: %s", strings.TrimSpace(line), answer)
		}
	}
	ln, err := net.Listen("unix", filepath.Join(dir, name))
	if err != nil {
		return nil, fmt.Errorf("fault: %w", err)
	}
	c := &Control{kit: k, ln: ln, conns: map[net.Conn]struct{}{}}
	c.wg.Go(c.accept)
	return c, nil
}

// Close ends the socket and whatever is held or delayed at a point.
func (c *Control) Close() error {
	err := c.ln.Close()
	c.mu.Lock()
	for conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
	c.mu.Unlock()
	for _, p := range Points() {
		c.kit.disarm(p)
	}
	c.wg.Wait()
	return err
}

func (c *Control) accept() {
	for {
		conn, err := c.ln.Accept()
		if err != nil {
			return
		}
		if !c.keep(conn) {
			_ = conn.Close()
			return
		}
		c.wg.Go(func() { c.serve(conn) })
	}
}

func (c *Control) keep(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conns == nil {
		return false
	}
	c.conns[conn] = struct{}{}
	return true
}

func (c *Control) serve(conn net.Conn) {
	defer func() {
		c.mu.Lock()
		delete(c.conns, conn)
		c.mu.Unlock()
		_ = conn.Close()
	}()
	in := bufio.NewScanner(conn)
	for in.Scan() {
		if _, err := fmt.Fprintln(conn, c.kit.do(in.Text())); err != nil {
			return
		}
	}
}
