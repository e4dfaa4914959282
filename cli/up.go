package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"leasehold.dev/cli/local"
)

type upCommand struct {
	Model    string `help:"GGUF file to serve." type:"existingfile" env:"LEASEHOLD_MODEL" required:"" placeholder:"FILE"`
	Dir      string `help:"Folder for sockets, certificates, logs; emptied at the start and removed at the end." placeholder:"DIR"`
	Audit    string `help:"Folder of the audit logs, which stay at the end; inside of --dir, and removed with it, when absent." placeholder:"DIR"`
	Bin      string `help:"Folder of the leasehold-* programs; this program's own when absent." placeholder:"DIR"`
	Cache    string `help:"Folder for packed weights." placeholder:"DIR"`
	Backend  string `help:"Engine back end." enum:"cpu,ref" default:"cpu"`
	Registry string `help:"consul://host:port; embedded in this process when absent." placeholder:"URL"`
	HTTP     string `help:"Router's REST address." default:"127.0.0.1:8080"`
	Promise  int    `help:"Context length to promise, in tokens." default:"8192"`
	Demo     bool   `help:"Ask one question, show what happened, stop everything."`
	Question string `help:"What the demo asks." default:"Why is the sky blue?"`
}

const (
	startTimeout = 90 * time.Second
	stopGrace    = 15 * time.Second
)

// Run starts the mesh, and either asks the demo's question or waits for the interrupt. Everything it started is
// stopped when it returns. An interrupt is no error, whatever it cuts off; a second one kills.
func (c *upCommand) Run(ctx context.Context, s streams) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	conf, err := c.config(s)
	if err != nil {
		return err
	}
	lock, err := claim(conf.Dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	closing, err := c.serve(ctx, s, conf)
	if ctx.Err() != nil && !c.Demo {
		if err != nil {
			s.sayf("up: %v", err)
		}
		err = nil
	}
	if err == nil {
		err = os.RemoveAll(conf.Dir)
	} else {
		err = fmt.Errorf("%w\nthe logs stay in %s", err, conf.Dir)
	}
	if closing != "" {
		s.sayf("%s", closing)
	}
	return err
}

// serve is the life of one mesh. closing is to be printed last.
func (c *upCommand) serve(ctx context.Context, s streams, conf local.Config) (closing string, err error) {
	start, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not up within %v", startTimeout))
	defer cancel()
	began := time.Now()
	m, err := local.Start(start, conf)
	if ctx.Err() != nil && err != nil {
		return "", errors.New("interrupted while it started")
	}
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, stopMesh(s, m)) }()
	if err := m.Ready(start); err != nil {
		return "", err
	}
	s.sayf("up: ready after %.1f s", time.Since(began).Seconds())
	s.sayf("up: audit logs of %d processes in %s", len(m.Processes()), m.AuditDir())
	st := state{PID: os.Getpid(), URL: m.URL(), Key: m.Tenants["demo"], Canary: m.Canary, Registry: m.Registry, Identity: m.CLIIdentity(), Model: m.Model}
	if err := st.write(m.Dir); err != nil {
		return "", err
	}
	if c.Demo {
		return runDemo(ctx, s, m, c.Question)
	}
	if err := c.welcome(ctx, s, m, st); err != nil {
		return "", err
	}
	if p := m.Wait(ctx); p != nil {
		return "", p.Ended("by itself")
	}
	return "", nil
}

// stopMesh kills at an interrupt.
func stopMesh(s streams, m *local.Mesh) error {
	s.sayf("up: stopping; running requests may finish, an interrupt kills")
	began := time.Now()
	again, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	killed := make(chan error, 1)
	notKilled := context.AfterFunc(again, func() { killed <- m.Kill() })
	err := m.Stop(stopGrace)
	if !notKilled() {
		err = errors.Join(err, <-killed)
	}
	s.sayf("up: stopped %d processes in %.1f s", len(m.Processes()), time.Since(began).Seconds())
	return errors.Join(err, os.RemoveAll(filepath.Join(m.Dir, stateFile)))
}

func (c *upCommand) config(s streams) (conf local.Config, err error) {
	conf = local.Default()
	conf.Backend, conf.Registry, conf.HTTP, conf.Promise = c.Backend, c.Registry, c.HTTP, c.Promise
	conf.Canary = local.NewKey()
	conf.Progress = func(format string, args ...any) { s.sayf("up: "+format, args...) }
	if conf.Model, err = filepath.Abs(c.Model); err != nil {
		return conf, fmt.Errorf("up: %w", err)
	}
	if conf.Bin, err = c.programs(); err != nil {
		return conf, err
	}
	conf.Cache = c.cache()
	if conf.Dir, err = filepath.Abs(orDefault(c.Dir)); err != nil {
		return conf, fmt.Errorf("up: %w", err)
	}
	if c.Audit != "" {
		if conf.Audit, err = filepath.Abs(c.Audit); err != nil {
			return conf, fmt.Errorf("up: %w", err)
		}
	}
	if !c.Demo {
		return conf, nil
	}
	conf.HTTP = "127.0.0.1:0"
	if c.Dir == "" {
		if conf.Dir, err = os.MkdirTemp("", "leasehold-demo"); err != nil {
			return conf, fmt.Errorf("up: %w", err)
		}
	}
	return conf, nil
}

// programs is the folder of the other binaries.
func (c *upCommand) programs() (string, error) {
	if c.Bin != "" {
		return c.Bin, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("up: %w", err)
	}
	return filepath.Dir(self), nil
}

func (c *upCommand) cache() string {
	if c.Cache != "" {
		return c.Cache
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "leasehold")
}

// welcome prints how to use the mesh.
func (c *upCommand) welcome(ctx context.Context, s streams, m *local.Mesh, st state) error {
	s.sayf("\n  REST   %s/v1\n  key    %s\n  state  %s\n", st.URL, st.Key, m.Dir)
	for _, p := range m.Processes() {
		a, err := p.Addr(ctx)
		if err != nil {
			return err
		}
		s.sayf("  %-20s grpc %-16s metrics http://%s/metrics", p.Name, a.GRPC, a.Admin)
	}
	s.sayf(`
  curl -N %s/v1/chat/completions -H 'Authorization: Bearer %s' -H 'Content-Type: application/json' \
    -d '{"model": "%s", "stream": true, "messages": [{"role": "user", "content": "Why is the sky blue?"}]}'
`, st.URL, st.Key, modelName(ctx, st))
	s.sayf("  leasehold chat, models and ps %s. Interrupt to stop.", finding(m.Dir))
	return nil
}

func finding(dir string) string {
	if dir == defaultDir() {
		return "find this mesh by themselves"
	}
	return "find this mesh with --dir " + dir
}
