// Command bars measures the project's bars: one with -run NAME, those under a minute with -quick, or -all.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"text/tabwriter"

	"leasehold.dev/integration/bar"
	"leasehold.dev/integration/haul"
)

func main() {
	if haul.Sending() { // bench-transfer starts this program again
		return
	}
	name := flag.String("run", "", "`bar` to run")
	quick := flag.Bool("quick", false, "run the bars that end within a minute")
	all := flag.Bool("all", false, "run every bar")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, *name, *quick, *all)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bars:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, name string, quick, all bool) error {
	env, err := bar.FromEnviron(os.Stdout)
	if err != nil {
		return err
	}
	var results []bar.Result
	for _, b := range bar.All {
		if all || quick && b.Quick || b.Name == name {
			results = append(results, bar.Do(ctx, b, env))
		}
	}
	if len(results) == 0 {
		return fmt.Errorf("no bar is named %q", name)
	}
	missed := 0
	for _, r := range results {
		if !r.Met {
			missed++
		}
	}
	if len(results) > 1 {
		table(results)
	}
	if missed > 0 {
		return fmt.Errorf("%d of %d bars are not met", missed, len(results))
	}
	return nil
}

func table(results []bar.Result) {
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "bar\tmet\tseconds\tfigures")
	for _, r := range results {
		figures, err := json.Marshal(r.Figures)
		if err != nil || r.Error != "" {
			figures = []byte(r.Error)
		}
		fmt.Fprintf(w, "%s\t%v\t%.1f\t%s\n", r.Bar, r.Met, r.Seconds, figures)
	}
	w.Flush()
}
