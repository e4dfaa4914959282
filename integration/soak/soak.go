package soak

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"leasehold.dev/cli"
	"leasehold.dev/integration/scenario"
)

// Plan says how long, how often a worker of each mesh dies, and which random choices are made.
type Plan struct {
	Time  time.Duration
	Kills time.Duration
	Seed  uint64
}

// Pools are a few prompts wide: sixteen tenants never fit.
const (
	echoPromise, echoPages = 2048, 72 // tokens, pages
	realPromise, realPages = 512, 28
	sayEvery               = 30 * time.Second
)

// Run soaks both meshes and returns a report of each, by name. The error says what could not be done; what was seen and
// must not be is in the reports.
func Run(ctx context.Context, s scenario.Setup, p Plan, out func(string, ...any)) (reports map[string]*Report, err error) {
	dir, err := os.MkdirTemp("", "leasehold-soak")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	audit := filepath.Join(dir, "audit")
	meshes, err := openBoth(ctx, s, dir, audit)
	reports = map[string]*Report{}
	for _, m := range meshes {
		reports[m.name] = m.report
	}
	if err == nil {
		err = soak(ctx, meshes, p, out)
	}
	for _, m := range meshes {
		err = errors.Join(err, m.Close())
	}
	if err != nil {
		return reports, err
	}
	for _, m := range meshes {
		var text bytes.Buffer
		if err := cli.Run(ctx, []string{"audit", "verify", filepath.Join(audit, m.name)}, strings.NewReader(""), &text); err != nil {
			m.report.fault("%s: its audit logs do not verify: %v\n%s", m.name, err, text.String())
		}
	}
	return reports, nil
}

func openBoth(ctx context.Context, s scenario.Setup, dir, audit string) ([]*mesh, error) {
	c, err := s.Canary(dir, echoPromise)
	if err != nil {
		return nil, err
	}
	echoes, err := open(ctx, c, "canary", filepath.Join(audit, "canary"), echoPromise, echoPages)
	if err != nil {
		return nil, err
	}
	echoes.askEchoes(echoPromise / 2)
	chats, err := open(ctx, s, "real", filepath.Join(audit, "real"), realPromise, realPages)
	if err != nil {
		return []*mesh{echoes}, err
	}
	return []*mesh{echoes, chats}, chats.askAgain(ctx)
}

// soak runs the load of every mesh and its kills for the plan's time.
func soak(ctx context.Context, meshes []*mesh, p Plan, out func(string, ...any)) error {
	during, cancel := context.WithTimeout(ctx, p.Time)
	defer cancel()
	ended := make(chan error)
	for i, m := range meshes {
		seed := p.Seed + uint64(i)
		go func() { m.load(during, seed); ended <- nil }()
		go func() { ended <- m.kill(during, p.Kills, rand.New(rand.NewPCG(seed, seed))) }()
	}
	tick := time.NewTicker(sayEvery)
	defer tick.Stop()
	var err error
	for left := 2 * len(meshes); left > 0; {
		select {
		case one := <-ended:
			if left--; one != nil { // no worker to kill: the rest would be no soak
				cancel()
				err = errors.Join(err, one)
			}
		case <-tick.C:
			for _, m := range meshes {
				out("%s: %v", m.name, m.report)
			}
		}
	}
	for _, m := range meshes {
		err = errors.Join(err, m.rest(ctx))
	}
	return errors.Join(err, ctx.Err())
}

// String is a line of what was seen so far.
func (r *Report) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprintf("%d requests: %d whole, %d cancelled, %d refused, %d lost with a worker; %d kills, %d tokens, %d foreign markers, %d unexplained faults",
		r.Requests, r.Whole, r.Cancelled, r.Refused, r.Lost, r.Kills, r.Tokens, r.Foreign, r.Faults)
}
