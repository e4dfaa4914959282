package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"leasehold.dev/cli/local"
	"leasehold.dev/protos/errs"
)

type upCommand struct {
	Model    string `help:"GGUF file to serve." type:"existingfile" env:"LEASEHOLD_MODEL" required:""`
	Dir      string `help:"Folder for sockets, certificates, logs." placeholder:"DIR"`
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
// stopped when it returns.
func (c *upCommand) Run(ctx context.Context, s streams) (err error) {
	conf, err := c.config(s)
	if err != nil {
		return err
	}
	start, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not up within %v", startTimeout))
	defer cancel()
	began := time.Now()
	m, err := local.Start(start, conf)
	if err != nil {
		return err
	}
	closing := ""
	defer func() {
		stopping := time.Now()
		err = errors.Join(err, m.Stop(stopGrace), os.RemoveAll(m.Dir))
		s.sayf("up: stopped %d processes in %.1f s", len(m.Processes()), time.Since(stopping).Seconds())
		if closing != "" {
			s.sayf("%s", closing)
		}
	}()
	if err := m.Ready(start); err != nil {
		return err
	}
	s.sayf("up: ready after %.1f s", time.Since(began).Seconds())
	key := m.Tenants["demo"]
	st := state{PID: os.Getpid(), URL: m.URL(), Key: key, Registry: m.Registry, Identity: m.CLIIdentity()}
	if err := st.write(m.Dir); err != nil {
		return err
	}
	if c.Demo {
		closing, err = runDemo(ctx, s, m, c.Question)
		return err
	}
	return c.wait(ctx, s, m, st)
}

func (c *upCommand) config(s streams) (local.Config, error) {
	conf := local.Default()
	conf.Backend, conf.Registry, conf.HTTP, conf.Promise, conf.Dir, conf.Bin, conf.Cache = c.Backend, c.Registry, c.HTTP, c.Promise, c.Dir, c.Bin, c.Cache
	var err error
	if conf.Model, err = filepath.Abs(c.Model); err != nil {
		return conf, fmt.Errorf("up: %w", err)
	}
	if conf.Bin == "" {
		self, err := os.Executable()
		if err != nil {
			return conf, fmt.Errorf("up: %w", err)
		}
		conf.Bin = filepath.Dir(self)
	}
	if conf.Cache == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			dir = os.TempDir()
		}
		conf.Cache = filepath.Join(dir, "leasehold")
	}
	conf.Progress = func(format string, args ...any) { s.sayf("up: "+format, args...) }
	if c.Demo {
		conf.HTTP = "127.0.0.1:0"
		if conf.Dir == "" {
			conf.Dir, err = os.MkdirTemp("", "leasehold-demo")
		}
		return conf, err
	}
	if conf.Dir == "" {
		conf.Dir = defaultDir()
	}
	if st, err := readState(conf.Dir); err == nil {
		return conf, errs.New(errs.Invalid, "up: a mesh runs from %s already, at %s, process %d", conf.Dir, st.URL, st.PID)
	}
	return conf, os.RemoveAll(conf.Dir) // what a killed run left
}

// wait prints how to use the mesh and returns at the interrupt, or when a process ends by itself.
func (c *upCommand) wait(ctx context.Context, s streams, m *local.Mesh, st state) error {
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

  leasehold chat, leasehold models and leasehold ps find this mesh by themselves. Interrupt to stop.`, st.URL, st.Key, modelName(ctx, st))
	gone := make(chan *local.Process, len(m.Processes()))
	for _, p := range m.Processes() {
		go func() {
			<-p.Exited()
			gone <- p
		}()
	}
	select {
	case <-ctx.Done():
		return nil
	case p := <-gone:
		return errs.New(errs.Unavailable, "%s ended by itself (%v); its log is %s", p.Name, p.Err(), p.Log())
	}
}
