package drive

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"strings"

	"leasehold.dev/gpu/layout"
	"leasehold.dev/protos/errs"
)

// Main is Run with a process's arguments.
func Main(ctx context.Context, args []string) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	c.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	return Run(ctx, c)
}

func parse(args []string) (c Config, err error) {
	var model, backend, transports string
	fs := flag.NewFlagSet("leasehold-mover", flag.ContinueOnError)
	fs.StringVar(&model, "model", "", "GGUF `file`: says how a page looks and which weights it is for")
	fs.StringVar(&backend, "backend", layout.CPU, "back end of the workers: cpu, ref or ref-f32")
	fs.StringVar(&c.Dir, "dir", "", "runtime `directory` of the broker")
	fs.StringVar(&c.Name, "name", "mover", "`name` at the broker")
	fs.StringVar(&transports, "transports", "posix,cma", "UCX's `transports` that may be used, separated by commas: rc, cuda_copy, cuda_ipc, sysv, posix, cma")
	fs.BoolVar(&c.PlainTCP, "insecure-tcp", false, "allow transport tcp, in plain text: for tests")
	fs.StringVar(&c.TCPDevice, "insecure-tcp-device", "", "network `interface` that transport tcp goes over (default: lo)")
	fs.IntVar(&c.Digesters, "digest-threads", 1, "`threads` that digest pages")
	if err := fs.Parse(args); err != nil {
		return c, err
	}
	if fs.NArg() > 0 {
		return c, errs.New(errs.Invalid, "unexpected argument %q", fs.Arg(0))
	}
	if model == "" || c.Dir == "" {
		return c, errs.New(errs.Invalid, "-model and -dir are needed")
	}
	c.Transports = strings.Split(transports, ",")
	c.Layout, c.ModelRevision, _, err = layout.FromFile(model, backend)
	return c, err
}
