package local

import (
	"context"
	"fmt"
	"time"

	"leasehold.dev/mesh"
	"leasehold.dev/mesh/registry/embedded"
)

// embeddedRegistry is the registry of a run without Consul, served by this process.
type embeddedRegistry struct {
	addr   string
	cancel context.CancelFunc
	done   chan error
}

// startRegistry serves on listen until stop; ctx bounds the start only.
func startRegistry(ctx context.Context, listen, identityDir, log string) (*embeddedRegistry, error) {
	out, err := openLog(log)
	if err != nil {
		return nil, err
	}
	s, err := mesh.New(ctx, mesh.Config{Service: embedded.Service, ID: embedded.Service, Listen: listen, Admin: "127.0.0.1:0",
		IdentityDir: identityDir, Drain: time.Second, LogLevel: "info", LogOutput: out})
	if err != nil {
		out.Close()
		return nil, fmt.Errorf("local: registry: %w", err)
	}
	mesh.ServeRegistry(s)
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &embeddedRegistry{addr: s.Addr(), cancel: cancel, done: make(chan error, 1)}
	go func() {
		defer out.Close()
		r.done <- s.Run(run)
	}()
	return r, nil
}

func (r *embeddedRegistry) stop() error {
	r.cancel()
	return <-r.done
}
