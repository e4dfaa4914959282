// Command leasehold-mover moves pages for the broker of its host.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"leasehold.dev/kvbroker/drive"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := drive.Main(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "leasehold-mover:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to be given back
	}
}
