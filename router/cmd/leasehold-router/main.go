// Command leasehold-router is the tenants' edge of the mesh.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"leasehold.dev/router"
)

func main() {
	var c router.Config
	c.Flags(flag.CommandLine)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := router.Run(ctx, c); err != nil {
		fmt.Fprintln(os.Stderr, "leasehold-router:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to be given back
	}
}
