// Command ucxbench measures the ucx mover between two processes of this host: one JSON line.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"leasehold.dev/kvbroker/ucx/pair"
)

func main() {
	pair.Main()
	var b pair.Bench
	var transports string
	pages, window := flag.Uint("pages", 128, "`pages` to move"), flag.Uint("window", 16, "`pages` under way")
	flag.Uint64Var(&b.PageBytes, "page-bytes", 45*(32<<10), "`bytes` of a page, a multiple of 32 KiB")
	flag.IntVar(&b.Runs, "runs", 7, "`times`")
	flag.IntVar(&b.Lanes, "lanes", 1, "`endpoints` of the peer")
	flag.BoolVar(&b.NoDigest, "no-digest", false, "digest pages after the time, not within")
	flag.BoolVar(&b.PlainTCP, "plain-tcp", false, "allow transport tcp")
	flag.StringVar(&transports, "transports", "posix", "`list` of UCX's transports")
	flag.Parse()
	b.Pages, b.Window, b.Transports = uint32(*pages), uint32(*window), strings.Split(transports, ",")
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	r, err := b.Run(ctx)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(r)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "ucxbench:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to be given back
	}
}
