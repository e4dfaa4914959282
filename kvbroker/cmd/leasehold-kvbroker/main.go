// Command leasehold-kvbroker owns one page pool.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"leasehold.dev/kvbroker"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := kvbroker.Run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "leasehold-kvbroker:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to be given back
	}
}
