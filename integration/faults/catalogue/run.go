package catalogue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"leasehold.dev/integration/scenario"
)

// Result is one case on one mover.
type Result struct {
	Case
	Mover string // empty: none has a part in it
	Took  time.Duration
	Err   error
}

// Name of a case on a mover.
func (r Result) String() string {
	word := "as it must be"
	if r.Err != nil {
		word = "NOT as it must be: " + r.Err.Error()
	}
	mover := r.Mover
	if mover == "" {
		mover = "-"
	}
	return fmt.Sprintf("%-4s %-5s %5.1f s  %s: %s", r.Row, mover, r.Took.Seconds(), r.Name, word)
}

// caseTime bounds one case.
const caseTime = 60 * time.Second

// Run runs cases, those that share a mesh first, and tells each result as it comes. A mesh on which a case has failed is
// given up: the next case gets a fresh one.
func Run(ctx context.Context, s scenario.Setup, cases []Case, tell func(Result)) {
	for _, mover := range Movers() {
		shared(ctx, s, mover, cases, tell)
	}
	for _, c := range cases {
		switch {
		case c.Run == nil:
			tell(timed(Result{Case: c}, func() error { return goTest(ctx, c.Package, c.Tests) }))
		case c.Own && len(c.Movers) == 0:
			tell(alone(ctx, s, c, ""))
		case c.Own:
			for _, mover := range c.Movers {
				tell(alone(ctx, s, c, mover))
			}
		}
	}
}

func timed(r Result, f func() error) Result {
	start := time.Now()
	r.Err = f()
	r.Took = time.Since(start)
	return r
}

func has(movers []string, mover string) bool {
	for _, m := range movers {
		if m == mover {
			return true
		}
	}
	return false
}

func shared(ctx context.Context, s scenario.Setup, mover string, cases []Case, tell func(Result)) {
	var m *Mesh
	for _, c := range cases {
		if c.Own || c.Run == nil || !has(c.Movers, mover) {
			continue
		}
		r := timed(Result{Case: c, Mover: mover}, func() (err error) {
			if m == nil {
				if m, err = Open(ctx, s, mover, nil); err != nil {
					return err
				}
			}
			return one(ctx, c, m)
		})
		if r.Err != nil && m != nil {
			r.Err = errors.Join(r.Err, ignoreTold(m.Close()))
			m = nil
		}
		tell(r)
	}
	if m == nil {
		return
	}
	if err := m.Close(); err != nil {
		tell(Result{Case: Case{Row: "all", Name: "the mesh ends by itself"}, Mover: mover, Err: err})
	}
}

// ignoreTold drops how a mesh ended whose case has failed anyway, but for its length.
func ignoreTold(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	return errors.New("and the mesh then: " + text[:min(len(text), 300)])
}

func alone(ctx context.Context, s scenario.Setup, c Case, mover string) Result {
	return timed(Result{Case: c, Mover: mover}, func() error {
		on := mover
		if on == "" {
			on = GRPC
		}
		m, err := Open(ctx, s, on, c.Mesh)
		if err != nil {
			return err
		}
		return errors.Join(one(ctx, c, m), m.Close())
	})
}

func one(ctx context.Context, c Case, m *Mesh) error {
	ctx, cancel := context.WithTimeoutCause(ctx, caseTime, fmt.Errorf("%v are over", caseTime))
	defer cancel()
	return c.Run(ctx, m)
}

// goTest runs tests by name. None found is a failure.
func goTest(ctx context.Context, pkg, names string) error {
	out, err := exec.CommandContext(ctx, "go", "test", "-count=1", "-v", "-run", "^("+names+")$", pkg).CombinedOutput()
	passed := bytes.Count(out, []byte("\n--- PASS"))
	if strings.HasPrefix(string(out), "--- PASS") {
		passed++
	}
	want := len(strings.Split(names, "|"))
	if err != nil || passed < want {
		return fmt.Errorf("%s %s: %w, %d of %d passed\n%s", pkg, names, orNil(err), passed, want, tail(out))
	}
	return nil
}

func tail(b []byte) []byte { return b[max(0, len(b)-3000):] }
