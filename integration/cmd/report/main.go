// Command report reads `go test -json` on standard input and prints what a person wants to see of it.
//
// With -live it prints each package's line and the output of failed tests as they come, and exits 1 when anything
// failed. Without, it prints only the closing line, "N passed, N failed, N skipped", and exits 1 when a test failed or
// none ran.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64
}

// count is what a stream of events amounts to. A test counts once, subtests too; broken are packages that failed
// without a failed test (a build error, a panic outside a test, a timeout).
type count struct{ passed, failed, skipped, broken int }

func main() {
	live := flag.Bool("live", false, "print packages and failures as they come, no closing line")
	flag.Parse()
	c, err := report(os.Stdin, os.Stdout, *live)
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
	if !*live {
		fmt.Printf("%d passed, %d failed, %d skipped\n", c.passed, c.failed+c.broken, c.skipped)
	}
	if c.failed+c.broken > 0 || c.passed == 0 && !*live {
		os.Exit(1)
	}
}

func report(in io.Reader, out io.Writer, live bool) (count, error) {
	var c count
	output := map[string][]string{} // by package and test, until it passes
	failedIn := map[string]bool{}   // packages with a failed test
	sc := bufio.NewScanner(in)
	sc.Buffer(make([]byte, 1<<16), 64<<20)
	for sc.Scan() {
		var e event
		if json.Unmarshal(sc.Bytes(), &e) != nil {
			if live {
				fmt.Fprintln(out, sc.Text()) // what the toolchain says before the first event
			}
			continue
		}
		key := e.Package + " " + e.Test
		switch e.Action {
		case "output", "build-output":
			output[key] = append(output[key], e.Output)
			if e.Action == "build-output" && live {
				fmt.Fprint(out, e.Output)
			}
			continue
		case "pass", "fail", "skip":
		default:
			continue
		}
		if e.Test == "" {
			if e.Action == "fail" && !failedIn[e.Package] {
				c.broken++
			}
			if live {
				line(out, e, output[key], failedIn[e.Package])
			}
			delete(output, key)
			continue
		}
		switch e.Action {
		case "pass":
			c.passed++
		case "skip":
			c.skipped++
		case "fail":
			c.failed++
			failedIn[e.Package] = true
			if live {
				fmt.Fprint(out, strings.Join(output[key], ""))
			}
		}
		delete(output, key)
	}
	return c, sc.Err()
}

func line(out io.Writer, e event, text []string, explained bool) {
	switch {
	case e.Action == "fail":
		if !explained {
			fmt.Fprint(out, strings.Join(text, ""))
		}
		fmt.Fprintf(out, "FAIL\t%s\t%.1fs\n", e.Package, e.Elapsed)
	case e.Action == "pass":
		fmt.Fprintf(out, "ok\t%s\t%.1fs\n", e.Package, e.Elapsed)
	}
}
