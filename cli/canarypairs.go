package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"leasehold.dev/cli/doctor"
	"leasehold.dev/cli/probe"
	"leasehold.dev/mesh/boundary"
	"leasehold.dev/mesh/identity"
	"leasehold.dev/mesh/telemetry"
	"leasehold.dev/protos/errs"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/router/choose"
)

// askTime is how long a worker may take to say what it is.
const askTime = 5 * time.Second

// pairs are all that are to be asked, ready or not: one that is not will be refused, and that is a failure that shows. Each
// worker that the registry lists and that does not answer is a failed row of its own: it may be half of a pair.
func (w *watch) pairs(ctx context.Context) (all []string, silent []probe.Row, err error) {
	if len(w.Pair) > 0 {
		return w.Pair, nil, nil
	}
	ask := doctorCommand{psCommand: psCommand{Dir: w.Dir, Registry: w.Registry, Identity: w.Identity, Timeout: askTime}}
	url, dir, err := ask.find()
	if err != nil {
		return nil, nil, err
	}
	id, err := identity.Load(dir)
	if err != nil {
		return nil, nil, err
	}
	listed, err := ask.listed(ctx, url, id)
	if err != nil {
		return nil, nil, err
	}
	fleet, silent := fleetOf(askAll(ctx, listed, id, askTime))
	return pairsOf(fleet), silent, nil
}

// fleetOf is the workers that answered, and a row for each that did not.
func fleetOf(said []doctor.Said) (f choose.Fleet, silent []probe.Row) {
	for _, s := range said {
		if s.Service != "prefill" && s.Service != "decode" {
			continue
		}
		switch {
		case s.Err != "" || s.Status == nil:
			silent = append(silent, probe.Row{Pair: s.Service + " " + s.ID, Check: probe.Check{Name: "worker", Want: "an answer"}, Got: "no answer", Took: s.Took})
		case s.Service == "prefill":
			f.Prefill = append(f.Prefill, choose.FromStatus(s.Status))
		default:
			f.Decode = append(f.Decode, choose.FromStatus(s.Status))
		}
	}
	return f, silent
}

// pairsOf names every prefill and decode worker that fit together, and decode alone where it computes prompts too.
func pairsOf(f choose.Fleet) (all []string) {
	for _, d := range f.Decode {
		for _, p := range f.Prefill {
			if choose.Mover(p, d) != meshv1.Mover_MOVER_UNSPECIFIED {
				all = append(all, boundary.Pair(p.ID, d.ID))
			}
		}
		if d.SelfPrefill {
			all = append(all, boundary.Pair("", d.ID))
		}
	}
	slices.Sort(all)
	return all
}

// metrics serves /metrics, if it was asked for, until close is called.
func (w *watch) metrics(ctx context.Context) (closeAll func() error, err error) {
	closeAll = func() error { return nil }
	if w.Metrics == "" {
		return closeAll, nil
	}
	t, err := telemetry.New(ctx, "canary", "canary", "")
	if err != nil {
		return nil, err
	}
	if w.boundary, err = boundary.New(t.Meter(), time.Now); err != nil {
		return nil, err
	}
	lis, err := net.Listen("tcp", w.Metrics)
	if err != nil {
		return nil, errs.New(errs.Invalid, "--metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", t.Handler())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	done := make(chan error, 1)
	go func() { done <- server.Serve(lis) }()
	fmt.Fprintf(w.out, "metrics at http://%s/metrics\n", lis.Addr())
	return func() error {
		err := server.Close()
		if served := <-done; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
		return errors.Join(err, t.Close(context.WithoutCancel(ctx)))
	}, nil
}
