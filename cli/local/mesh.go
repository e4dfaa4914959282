package local

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// Host is where a process runs: the zero value is this one, by the loopback.
type Host struct {
	Enter []string // command that runs a program there, such as ip netns exec NAME; it must become the program
	IP    string   // that the process serves on, and others dial; empty: 127.0.0.1
}

// any is a free port of h.
func (h Host) any() string { return net.JoinHostPort(cmp.Or(h.IP, loopback), "0") }

const loopback = "127.0.0.1"

// Broker is one pool to start.
type Broker struct {
	Name  string
	Pages int
	Host  Host
	Args  []string
	Mover []string // arguments of its mover process, such as -transports; nil: it has none
}

// Worker is one prefill or decode worker to start, attached to a broker; it runs on its broker's host.
type Worker struct {
	ID     string
	Broker string
	Args   []string
}

// Config says what to start. Dir must not hold another run's state.
type Config struct {
	Dir      string // sockets, identities, logs; made when absent
	Bin      string // folder of the leasehold-* programs
	Model    string // GGUF
	Cache    string // packed weights
	Audit    string // audit logs, one folder a process; empty: audit in Dir
	Backend  string // cpu, ref
	Registry string // empty: embedded in this process
	Promise  int    // tokens
	HTTP     string // the router's REST address
	IP       string // that the router and the embedded registry serve on; empty: 127.0.0.1

	Brokers  []Broker
	Prefills []Worker
	Decodes  []Worker
	Router   []string             // more arguments of the router
	Tenants  map[string]string    // tenant -> key
	Canary   string               // key of the tenant "canary", who may name the pair of workers; empty: there is none
	Progress func(string, ...any) // nil: silent
}

// Default is the demo's mesh: two brokers whose pools differ in size, one prefill, one decode, one router.
func Default() Config {
	return Config{
		Backend:  "cpu",
		Promise:  8192,
		HTTP:     "127.0.0.1:0",
		Brokers:  []Broker{{Name: "broker-p", Pages: 160}, {Name: "broker-d", Pages: 288}},
		Prefills: []Worker{{ID: "prefill-0", Broker: "broker-p"}},
		Decodes:  []Worker{{ID: "decode-0", Broker: "broker-d"}},
		Tenants:  map[string]string{"demo": NewKey()},
	}
}

// NewKey is a fresh API key.
func NewKey() string {
	b := make([]byte, 16)
	rand.Read(b)
	return "lh-" + hex.EncodeToString(b)
}

// Mesh is a running mesh.
type Mesh struct {
	Config
	procs    map[string]*Process // by service/id
	order    []string            // in which they were started
	movers   map[string]*mover   // by broker
	registry *embeddedRegistry   // nil with Consul
}

// Start runs everything and returns when every process serves. It does not wait for readiness: see Ready. On error
// nothing is left running.
func Start(ctx context.Context, c Config) (*Mesh, error) {
	m := &Mesh{Config: c, procs: map[string]*Process{}, movers: map[string]*mover{}}
	if err := m.start(ctx); err != nil {
		return nil, errors.Join(err, m.Stop(2*time.Second))
	}
	return m, nil
}

func (m *Mesh) start(ctx context.Context) error {
	if err := os.MkdirAll(m.Dir, 0o700); err != nil {
		return fmt.Errorf("local: %w", err)
	}
	files, err := m.writeFiles()
	if err != nil {
		return err
	}
	if m.Registry == "" {
		if m.registry, err = startRegistry(ctx, Host{IP: m.IP}.any(), files.identity("registry", "registry"), filepath.Join(m.Dir, "registry.log")); err != nil {
			return err
		}
		m.Registry = "embedded://" + m.registry.addr
	}
	for _, b := range m.Brokers {
		args := append([]string{"-model", m.Model, "-backend", m.Backend, "-pages", strconv.Itoa(b.Pages),
			"-dir", m.BrokerDir(b.Name), "-admission-key", files.publicKey}, b.Args...)
		if b.Mover != nil {
			args = append([]string{"-movers", "shm,ucx,grpc", "-fabric", fabric}, args...) // which b.Args may change
			m.movers[b.Name] = m.keepMover(b)
		}
		m.add("kvbroker", b.Name, b.Host, files, args)
	}
	for _, w := range m.Prefills {
		m.add("prefill", w.ID, m.hostOf(w), files, m.workerArgs(w, files))
	}
	for _, w := range m.Decodes {
		m.add("decode", w.ID, m.hostOf(w), files, m.workerArgs(w, files))
	}
	m.add("router", "router-0", Host{IP: m.IP}, files, append([]string{"-http", m.HTTP, "-model", m.Model, "-keys", files.keys,
		"-admission-key", files.privateKey,
		"-receipt-key", filepath.Join(m.Dir, "receipt.key.pem"), "-promise", strconv.Itoa(m.Promise)}, m.Router...))
	for _, name := range m.order {
		if err := m.procs[name].Start(); err != nil {
			return err
		}
	}
	for _, name := range m.order {
		if _, err := m.procs[name].Addr(ctx); err != nil {
			return err
		}
		m.say("%s serves", name)
	}
	for _, k := range m.movers {
		k.start()
	}
	return nil
}

func (m *Mesh) workerArgs(w Worker, files *files) []string {
	return append([]string{"-model", m.Model, "-backend", m.Backend, "-broker-dir", m.BrokerDir(w.Broker),
		"-promise", strconv.Itoa(m.Promise), "-cache", m.Cache, "-admission-key", files.publicKey}, w.Args...)
}

func (m *Mesh) hostOf(w Worker) Host {
	for _, b := range m.Brokers {
		if b.Name == w.Broker {
			return b.Host
		}
	}
	return Host{}
}

func (m *Mesh) add(service, id string, at Host, files *files, args []string) {
	name := service + "/" + id
	args = append([]string{"-id", id, "-listen", at.any(), "-admin", at.any(), "-registry", m.Registry, "-identity", files.identity(service, id),
		"-audit-dir", filepath.Join(m.AuditDir(), service+"-"+id)}, args...)
	p := newProcess(name, filepath.Join(m.Bin, "leasehold-"+service), m.Dir, args)
	p.enter = at.Enter
	m.procs[name] = p
	m.order = append(m.order, name)
}

func (m *Mesh) say(format string, args ...any) {
	if m.Progress != nil {
		m.Progress(format, args...)
	}
}

// BrokerDir is where a broker's sockets are.
func (m *Mesh) BrokerDir(name string) string { return filepath.Join(m.Dir, "sock", name) }

// AuditDir holds the audit logs of all processes.
func (m *Mesh) AuditDir() string {
	if m.Audit != "" {
		return m.Audit
	}
	return filepath.Join(m.Dir, "audit")
}

// Process is the process named service/id, such as decode/decode-0; nil when there is none.
func (m *Mesh) Process(name string) *Process { return m.procs[name] }

// Processes is all of them, in the order in which they were started.
func (m *Mesh) Processes() []*Process {
	out := make([]*Process, 0, len(m.order))
	for _, name := range m.order {
		out = append(out, m.procs[name])
	}
	return out
}

// URL is the router's REST address.
func (m *Mesh) URL() string {
	p := m.procs["router/router-0"]
	p.mu.Lock()
	defer p.mu.Unlock()
	return "http://" + p.addr.HTTP
}

// CLIIdentity is the folder of the identity that the command line uses.
func (m *Mesh) CLIIdentity() string { return filepath.Join(m.Dir, "identity", "cli-cli") }

// Ready waits until the router says that at least one pair can serve.
func (m *Mesh) Ready(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	why := "no answer yet"
	for {
		ok, text := get(ctx, m.URL()+"/readyz")
		if ok {
			return nil
		}
		if text != "" {
			why = text
		}
		for _, p := range m.Processes() {
			select {
			case <-p.Exited():
				return p.Ended("before the mesh was ready")
			default:
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the mesh is not ready (%s): %w", why, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

func get(ctx context.Context, url string) (bool, string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false, err.Error()
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false, err.Error()
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, 4096))
	if err != nil {
		return false, err.Error()
	}
	return res.StatusCode == http.StatusOK, string(b)
}

// Wait returns the first process that ends, or nil when ctx ends before.
func (m *Mesh) Wait(ctx context.Context) *Process {
	ctx, cancel := context.WithCancel(ctx)
	first := make(chan *Process, len(m.order))
	var watchers sync.WaitGroup
	for _, p := range m.Processes() {
		watchers.Go(func() {
			select {
			case <-p.Exited():
				first <- p
			case <-ctx.Done():
			}
		})
	}
	defer watchers.Wait()
	defer cancel()
	select {
	case p := <-first:
		return p
	case <-ctx.Done():
		return nil
	}
}

// Kill ends every process with SIGKILL; a Stop that waits for one then goes on.
func (m *Mesh) Kill() error {
	var all []error
	for _, p := range m.Processes() {
		if p.Exited() != nil {
			all = append(all, p.Kill())
		}
	}
	return errors.Join(all...)
}

// Stop ends the processes, the last started first, and the registry at the very end. It reports every process that did
// not end by itself within grace.
func (m *Mesh) Stop(grace time.Duration) error {
	var all []error
	for _, k := range m.movers {
		k.stop(grace)
	}
	for i := len(m.order) - 1; i >= 0; i-- {
		if p := m.procs[m.order[i]]; p.Exited() != nil {
			all = append(all, p.Stop(grace))
		}
	}
	if m.registry != nil {
		all = append(all, m.registry.stop())
	}
	return errors.Join(all...)
}
