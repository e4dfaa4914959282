package cli

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/alecthomas/kong"
)

// streams are where a command reads and prints.
type streams struct {
	in  io.Reader
	out io.Writer
}

// interactive reports whether a person types: only then is there a prompt.
func (s streams) interactive() bool {
	f, ok := s.in.(*os.File)
	if !ok {
		return false
	}
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}

func (s streams) sayf(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

type grammar struct {
	Up     upCommand     `cmd:"" help:"Run a mesh on this host until it is interrupted."`
	Chat   chatCommand   `cmd:"" help:"Talk to a model; the answer streams."`
	Models modelsCommand `cmd:"" help:"List the served models with their effective limits."`
	Ps     psCommand     `cmd:"" help:"Who is where: workers, pools, leases."`
	Verify verifyCommand `cmd:"" help:"Check an answer's receipt; with its request, run it again and compare."`
	Rotate rotateCommand `cmd:"" name:"rotate-receipt-key" help:"Sign receipts with a new key; those of the old one stay good."`
	Canary canaryGroup   `cmd:"" help:"Ask for markers back, through every pair of workers."`
	Doctor doctorCommand `cmd:"" help:"Is every promise kept by what was derived, and does every half fit the other? Fails when not; for rollouts."`
	Audit  auditGroup    `cmd:"" help:"Read the audit logs: were they changed, and whose pages could a response have read?"`
}

// Run parses args and runs one command; without one it prints the help. SIGINT is handled where there is something to
// stop in order, by up and by a conversation; elsewhere it keeps its default.
func Run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	var g grammar
	exited := false
	p, err := kong.New(&g, kong.Name("leasehold"), kong.Description("Serves language models on split hardware, with proof."),
		kong.Writers(out, out), kong.Exit(func(int) { exited = true }), kong.BindTo(ctx, (*context.Context)(nil)), kong.Bind(streams{in, out}))
	if err != nil {
		return fmt.Errorf("command line: %w", err)
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	k, err := p.Parse(args)
	if exited { // help was printed
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w; try leasehold --help", err)
	}
	return k.Run()
}
