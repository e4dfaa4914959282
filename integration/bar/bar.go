package bar

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"leasehold.dev/model"
	"leasehold.dev/protos/errs"
)

// Bar is one thing that must be true.
type Bar struct {
	Name  string
	Quick bool // ends within a minute once everything is built
	Run   func(context.Context, *Env) (Result, error)
}

// Env is what a bar may use.
type Env struct {
	Out   io.Writer // progress and tables
	Model string    // path of the GGUF
	Bin   string    // folder of the built programs
	Peer  string    // folder of the peer's programs
	Cache string    // packed weights
}

// FromEnviron takes the paths that the Makefile exports.
func FromEnviron(out io.Writer) (*Env, error) {
	e := &Env{Out: out, Model: os.Getenv("LEASEHOLD_MODEL"), Bin: os.Getenv("LEASEHOLD_BIN")}
	if e.Model == "" || e.Bin == "" {
		return nil, errs.New(errs.Invalid, "LEASEHOLD_MODEL and LEASEHOLD_BIN are not set: run the bar through make")
	}
	build := filepath.Dir(e.Bin)
	e.Peer, e.Cache = filepath.Join(build, "peer"), filepath.Join(build, "cache")
	return e, os.MkdirAll(e.Cache, 0o755)
}

// number is what an environment variable says, which must be above 0; unset when it says nothing.
func number(name string, unset float64) (float64, error) {
	text := os.Getenv(name)
	if text == "" {
		return unset, nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n <= 0 {
		return 0, errs.New(errs.Invalid, "%s is %q, want a number above 0", name, text)
	}
	return n, nil
}

func (e *Env) sayf(format string, args ...any) { fmt.Fprintf(e.Out, format+"\n", args...) }

func (e *Env) load() (*model.Model, error) { return model.Load(e.Model) }

// Result is the bar's last line.
type Result struct {
	Bar     string         `json:"bar"`
	Met     bool           `json:"met"`
	Figures map[string]any `json:"figures"`
	Error   string         `json:"error,omitempty"`
	Seconds float64        `json:"seconds"`
}

// Do runs b and prints its closing line. A bar that could not be measured is not met.
func Do(ctx context.Context, b Bar, e *Env) Result {
	start := time.Now()
	r, err := b.Run(ctx, e)
	r.Bar, r.Seconds = b.Name, time.Since(start).Round(100*time.Millisecond).Seconds()
	if err != nil {
		r.Met, r.Error = false, err.Error()
	}
	line, err := json.Marshal(r)
	if err != nil {
		r.Met, r.Error = false, err.Error()
		line, _ = json.Marshal(Result{Bar: b.Name, Error: err.Error()})
	}
	fmt.Fprintf(e.Out, "%s\n", line)
	return r
}
