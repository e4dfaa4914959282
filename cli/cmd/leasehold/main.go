// Command leasehold runs a mesh on one host and talks to one.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"leasehold.dev/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	err := cli.Run(ctx, os.Args[1:], os.Stdin, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "leasehold:", err)
		os.Exit(1)
	}
}
