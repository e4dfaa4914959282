package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"time"

	"leasehold.dev/cli/probe"
	"leasehold.dev/mesh/boundary"
	"leasehold.dev/protos/errs"
)

type canaryGroup struct {
	Run   canaryCommand      `cmd:"" default:"withargs" help:"Ask once, or for ever with --every; --gate for a rollout. The mesh must serve the canary model."`
	Model canaryModelCommand `cmd:"" help:"Write the canary model, a GGUF file."`
}

type canaryCommand struct {
	target
	Registry string        `help:"Registry that knows the workers, instead of a mesh of this host." placeholder:"URL"`
	Identity string        `help:"Folder of the certificate to show; goes with --registry." placeholder:"DIR"`
	Pair     []string      `help:"Ask only this pair; without it, every pair of workers that fit together." placeholder:"PREFILL/DECODE"`
	Pairs    int           `help:"How many pairs there must be at least: a worker that has not come up is in no list." default:"1"`
	Model    string        `help:"Served model; the first one when absent."`
	Gate     bool          `help:"Ask at 0.5x, limit-1, limit and limit+1, once; anything unexpected is a failure."`
	Promise  int           `help:"Limit in tokens to hold the mesh to; the effective one that it publishes when absent."`
	Tokens   int           `help:"Length of a prompt, but for a gate's." default:"640"`
	Every    time.Duration `help:"Ask again after this time, until interrupted." placeholder:"TIME"`
	Metrics  string        `help:"Address to serve /metrics on, with --every." placeholder:"HOST:PORT"`
	Timeout  time.Duration `help:"How long one request may take." default:"15m"`
}

// Run is nil when every check was as it must be; with --every, when it was interrupted.
func (c *canaryCommand) Run(ctx context.Context, s streams) error {
	if c.Gate && c.Every > 0 || c.Metrics != "" && c.Every <= 0 {
		return errs.New(errs.Invalid, "--gate is asked once, without --every; --metrics needs --every")
	}
	url, key, err := c.where()
	if err != nil {
		return err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	client := &probe.Client{URL: url, Key: key, Model: c.Model, HTTP: &http.Client{Transport: transport, Timeout: c.Timeout}}
	w := watch{canaryCommand: c, client: client, rounds: &probe.Rounds{Ask: client.Ask}, out: s.out}
	if c.Every <= 0 {
		return w.round(ctx)
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	return w.serve(ctx)
}

// where is the router, and the canary's key.
func (c *canaryCommand) where() (url, key string, err error) {
	if c.URL != "" {
		return c.find()
	}
	st, err := readState(orDefault(c.Dir))
	if c.Key != "" {
		st.Canary = c.Key
	}
	if err == nil && st.Canary == "" {
		err = errs.New(errs.NotFound, "this mesh has no canary's key: give one with --key")
	}
	return st.URL, st.Canary, err
}

// serve asks round after round until ctx ends. What a round finds is in its table and in the metrics.
func (w *watch) serve(ctx context.Context) (err error) {
	close, err := w.metrics(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, close()) }()
	tick := time.NewTicker(w.Every)
	defer tick.Stop()
	for {
		if failed := w.round(ctx); failed != nil && ctx.Err() == nil {
			fmt.Fprintf(w.out, "%v\n", failed)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// watch is the life of one canary.
type watch struct {
	*canaryCommand
	client   *probe.Client
	rounds   *probe.Rounds
	boundary *boundary.Recorder // nil: nobody asks
	known    map[string]bool    // pairs with a clock
	out      io.Writer
}

// round asks every pair, prints the table, and fails when a row does.
func (w *watch) round(ctx context.Context) error {
	limit, err := w.client.Limit(ctx)
	if err != nil {
		return err
	}
	if w.Promise > 0 {
		limit = w.Promise
	}
	checks, err := w.checks(limit)
	if err != nil {
		return err
	}
	pairs, rows, err := w.pairs(ctx)
	if err != nil {
		return err
	}
	if len(pairs) < w.Pairs {
		return errs.New(errs.Unavailable, "canary: there are %d pairs, and must be %d", len(pairs), w.Pairs)
	}
	fmt.Fprintf(w.out, "%s at %s: limit %d tokens, %d pairs, %s\n", w.client.Model, w.client.URL, limit, len(pairs), time.Now().UTC().Format(time.RFC3339))
	for _, p := range pairs {
		probe.Expect(w.boundary, p)
		more, err := w.rounds.Run(ctx, p, checks)
		rows = append(rows, more...)
		if err != nil {
			return errors.Join(err, probe.Print(w.out, rows))
		}
	}
	gone, err := w.rounds.Run(ctx, gonePair, []probe.Check{probe.Gone()})
	rows = append(rows, gone...)
	for _, r := range rows {
		probe.Record(w.boundary, r)
	}
	w.forget(pairs)
	if err := errors.Join(err, probe.Print(w.out, rows)); err != nil {
		return err
	}
	if n := probe.Failed(rows); n > 0 {
		return errs.New(errs.Corrupt, "canary: %d of %d checks are not as they must be", n, len(rows))
	}
	return nil
}

// gonePair is no worker's name: theirs are lower case.
const gonePair = "NOBODY/NOBODY"

func (w *watch) checks(limit int) ([]probe.Check, error) {
	if w.Gate {
		return probe.Gate(limit)
	}
	return probe.Rest(limit, w.Tokens)
}

// forget ends the clocks of pairs that no longer exist; one that only fails keeps its clock.
func (w *watch) forget(pairs []string) {
	now := map[string]bool{}
	for _, p := range pairs {
		now[p] = true
	}
	for p := range w.known {
		if !now[p] {
			w.boundary.Forget(p)
		}
	}
	w.known = now
}
