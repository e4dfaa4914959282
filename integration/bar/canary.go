package bar

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"leasehold.dev/cli"
	"leasehold.dev/cli/local"
	"leasehold.dev/cli/probe"
	"leasehold.dev/integration/scenario"
	"leasehold.dev/model/canary"
)

var canaryLengths = []int{200, 640, 4096, 50000}

const (
	canaryTenants = 3
	canaryPair    = "prefill-0/decode-0" // at two brokers: pages move by grpc
	canaryContext = 50000 + canary.Answer
)

// runCanary asks for markers back over REST, through the split mesh, and then has the gate judge the same mesh.
func runCanary(ctx context.Context, e *Env) (r Result, err error) {
	dir, err := os.MkdirTemp("", "leasehold-canary")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	setup, err := e.setup().Canary(dir, canaryContext)
	if err != nil {
		return r, err
	}
	st, err := scenario.Open(ctx, setup, func(c *local.Config) {
		c.Canary, c.Promise = local.NewKey(), canaryContext
		for i := range c.Brokers {
			c.Brokers[i].Pages = 2*(canaryContext/64+1) + 8
		}
	})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	r.Figures = map[string]any{"context": canaryContext, "tenants": canaryTenants}
	exact, asked, err := e.canaryEchoes(ctx, st, r.Figures)
	if err != nil {
		return r, err
	}
	gate := e.canaryGate(ctx, st)
	r.Figures["asked"], r.Figures["exact"], r.Figures["gate_open"] = asked, exact, gate == nil
	r.Met = asked == len(canaryLengths)*canaryTenants && exact == asked && gate == nil
	return r, gate
}

func (e *Env) canaryEchoes(ctx context.Context, st *scenario.Stage, figures map[string]any) (exact, asked int, err error) {
	client, closeIdle := st.Probe(10 * time.Minute)
	defer closeIdle()
	e.sayf("%8s %7s %8s  %s", "tokens", "tenant", "seconds", "answer")
	for _, n := range canaryLengths {
		var seconds []float64
		for tenant := range canaryTenants {
			prompt, err := canary.New(tenant, n, uint64(n))
			if err != nil {
				return exact, asked, err
			}
			row := probe.Judge(probe.Check{Name: "echo", Tokens: n, Want: probe.Echo}, prompt, canaryPair, client.Ask(ctx, prompt, canaryPair))
			if asked++; row.OK {
				exact++
			}
			seconds = append(seconds, row.Took.Round(time.Millisecond).Seconds())
			e.sayf("%8d %7d %8.3f  %s (%v)", n, tenant, row.Took.Seconds(), row.Got, row.Verdict)
		}
		figures[fmt.Sprintf("seconds_%d", n)] = seconds
	}
	return exact, asked, nil
}

// canaryGate is the gate as an operator runs it.
func (e *Env) canaryGate(ctx context.Context, st *scenario.Stage) error {
	var out bytes.Buffer
	err := cli.Run(ctx, []string{"canary", "--gate", "--url", st.URL(), "--key", st.Mesh.Canary, "--registry", st.Registry,
		"--identity", st.CLIIdentity()}, nil, &out)
	e.sayf("%s", out.String())
	return err
}
