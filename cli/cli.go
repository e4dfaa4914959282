package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/alecthomas/kong"
)

// streams are where a command reads and prints.
type streams struct {
	in  io.Reader
	out io.Writer
}

func (s streams) sayf(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

type grammar struct {
	Up     upCommand     `cmd:"" help:"Run a mesh on this host until it is interrupted."`
	Chat   chatCommand   `cmd:"" help:"Talk to a model; the answer streams."`
	Models modelsCommand `cmd:"" help:"List the served models with their effective limits."`
	Ps     psCommand     `cmd:"" help:"Who is where: workers, pools, leases."`
}

// Run parses args and runs one command.
func Run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	var g grammar
	exited := false
	p, err := kong.New(&g, kong.Name("leasehold"), kong.Description("Serves language models on split hardware, with proof."),
		kong.Writers(out, out), kong.Exit(func(int) { exited = true }), kong.BindTo(ctx, (*context.Context)(nil)), kong.Bind(streams{in, out}))
	if err != nil {
		return fmt.Errorf("command line: %w", err)
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
