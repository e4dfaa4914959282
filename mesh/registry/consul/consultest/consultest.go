package consultest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Patience is how long a start may take on a slow machine.
const Patience = 90 * time.Second

// Server is a Consul server. Its methods are for one goroutine.
type Server struct {
	Address string // host:port of the HTTP API, the same after a restart

	t      testing.TB
	binary string
	dir    string
	proc   *exec.Cmd // nil: not running
	exited chan struct{}
}

// Start starts a server and waits until it has a leader. It fails the test if there is no binary: see [Binary]. The server
// ends with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	bin, err := Binary()
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{t: t, binary: bin, dir: t.TempDir()}
	ports := freePorts(t, 3)
	s.Address = net.JoinHostPort("127.0.0.1", fmt.Sprint(ports[0]))
	if err := os.WriteFile(filepath.Join(s.dir, "server.json"), config(s.dir, ports), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	s.Restart()
	return s
}

// URL is what -registry takes.
func (s *Server) URL() string { return "consul://" + s.Address }

// Kill ends the server without a word.
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

// Stop ends the server as an operator would.
func (s *Server) Stop() { s.end(syscall.SIGTERM) }

func (s *Server) end(sig syscall.Signal) {
	s.t.Helper()
	if s.proc == nil {
		return
	}
	if err := s.proc.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.t.Errorf("consul: %v: %v", sig, err)
	}
	timeout := time.AfterFunc(Patience, func() { _ = s.proc.Process.Kill() })
	defer timeout.Stop()
	<-s.exited
	s.proc = nil
}

// Restart starts a server that was ended, at the same ports and with what it kept on disk, and waits until it leads.
func (s *Server) Restart() {
	s.t.Helper()
	if s.proc != nil {
		return
	}
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(s.binary, "agent", "-config-file", filepath.Join(s.dir, "server.json"))
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		s.t.Fatalf("consul: %v", err)
	}
	exited := make(chan struct{})
	go func() { defer close(exited); _ = cmd.Wait() }()
	s.proc, s.exited = cmd, exited
	if err := s.waitLeader(); err != nil {
		s.t.Fatalf("consul: %v\n%s", err, s.tail())
	}
}

// waitLeader asks until the server answers with itself as the leader.
func (s *Server) waitLeader() error {
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	timeout, tick := time.NewTimer(Patience), time.NewTicker(50*time.Millisecond)
	defer timeout.Stop()
	defer tick.Stop()
	for {
		if leads(client, s.Address) {
			return nil
		}
		select {
		case <-s.exited:
			return errors.New("the server ended by itself")
		case <-timeout.C:
			return fmt.Errorf("no leader after %v", Patience)
		case <-tick.C:
		}
	}
}

// leads reports whether the catalog can be read, which needs a leader.
func leads(c *http.Client, addr string) bool {
	resp, err := c.Get("http://" + addr + "/v1/catalog/nodes")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	var nodes []json.RawMessage
	return resp.StatusCode == http.StatusOK && json.NewDecoder(resp.Body).Decode(&nodes) == nil && len(nodes) > 0
}

func (s *Server) tail() string {
	b, err := os.ReadFile(filepath.Join(s.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-4000):])
}

func config(dir string, ports []int) []byte {
	b, _ := json.MarshalIndent(map[string]any{ // numbers and strings always marshal
		"node_name": "n1", "datacenter": "dc1", "server": true, "bootstrap_expect": 1,
		"bind_addr": "127.0.0.1", "client_addr": "127.0.0.1", "data_dir": filepath.Join(dir, "data"),
		"ports": map[string]int{"http": ports[0], "server": ports[1], "serf_lan": ports[2],
			"https": -1, "grpc": -1, "grpc_tls": -1, "dns": -1, "serf_wan": -1},
		"performance":          map[string]int{"raft_multiplier": 1},
		"disable_update_check": true,
		"log_level":            "WARN",
	}, "", "  ")
	return b
}

var portsMu sync.Mutex

// freePorts are ports that nobody listened on just now. They are held together while they are chosen, so that they differ.
func freePorts(t testing.TB, n int) []int {
	t.Helper()
	portsMu.Lock()
	defer portsMu.Unlock()
	var ports []int
	for range n {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = ln.Close() }()
		ports = append(ports, ln.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

// Binary finds the server that consul/build.sh builds: in $LEASEHOLD_BIN, or in build/bin of the tree around the working
// directory. Its error says what to do.
func Binary() (string, error) {
	var tried []string
	if dir := os.Getenv("LEASEHOLD_BIN"); dir != "" {
		tried = append(tried, filepath.Join(dir, "consul"))
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			tried = append(tried, filepath.Join(dir, "build", "bin", "consul"))
		}
	}
	for _, f := range tried {
		if st, err := os.Stat(f); err == nil && st.Mode()&0o111 != 0 {
			return f, nil
		}
	}
	return "", fmt.Errorf("no Consul server at %s: run `make consul`", strings.Join(tried, " or "))
}
