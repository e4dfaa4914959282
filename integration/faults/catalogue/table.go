package catalogue

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"leasehold.dev/integration/scenario"
	"leasehold.dev/model/canary"
)

const tests = "leasehold.dev/integration/"

// testCases are the scenarios that are tests of other packages.
func testCases() []Case {
	return []Case{
		{Row: "H1", Name: "at, below and above each half's limit", Movers: between(), Package: tests + "handoff", Tests: "TestH1"},
		{Row: "H2", Name: "prefill refuses late", Movers: between(), Package: tests + "handoff", Tests: "TestH2"},
		{Row: "H3", Name: "every lie of a source broker that holds the secret (also H4 to H7, H15)", Movers: between(), Package: tests + "handoff", Tests: "TestLies"},
		{Row: "H5", Name: "bytes flip in each used page, also in those already sent", Movers: between(), Package: tests + "handoff", Tests: "TestH5|TestH5AfterItWasSent"},
		{Row: "H10", Name: "decode without a mover", Package: "leasehold.dev/decode", Tests: "TestWithoutAMoverItIsNotReady"},
		{Row: "H13", Name: "a stub with copied numbers", Movers: between(), Package: tests + "handoff", Tests: "TestH13"},
		{Row: "L8", Name: "the client goes away between prefill's end and decode's start", Movers: between(), Package: tests + "handoff", Tests: "TestL8"},
		{Row: "C4", Name: "Consul away, and a stale catalogue", Package: tests + "control", Tests: "TestConsulAway|TestStaleCatalogue"},
	}
}

// missing rows have no scenario, for a reason.
var missing = map[string]string{
	"T2": "needs the prefix cache",
	"T7": "needs the prefix cache",
	"T8": "needs the prefix cache",
}

// unshared rows have no case on the shm mover, for a reason.
var unshared = map[string]string{
	"C1": "who may call what is asked before a mover is chosen",
	"C2": "likewise what is no message; wrong messages of a Pull are in rows H3 to H7",
}

// Cases is the whole table.
func Cases() []Case {
	var all []Case
	for _, b := range handoffPoints() {
		all = append(all, b.each())
	}
	all = append(all, Case{Row: "H12", Name: "prefill says a thousandth of its time", Movers: Movers(), Run: h12})
	all = append(all, lifeCases()...)
	all = append(all, tenantCases()...)
	all = append(all, controlCases()...)
	all = append(all, testCases()...)
	for i := range all {
		if _, not := notByUCX[all[i].Row+" "+all[i].Name]; not {
			all[i].Movers = slices.DeleteFunc(slices.Clone(all[i].Movers), func(m string) bool { return m == UCX })
		}
	}
	return all
}

// notByUCX are the scenarios that have no counterpart by ucx, or none yet, and why. Its own points (mover/offer, mover/landed,
// mover/drained) are scripted in kvbroker/server, with real mover processes.
var notByUCX = map[string]string{
	"H3 a page is handed over twice":                                 "the mover process refuses the second, as invalid and not as corrupt",
	"H3 a page is lost on the wire":                                  "pages do not pass mover/wire: a lost Sent is a silent peer, and ends with the deadline",
	"H4 the Completion comes twice":                                  "fewer messages pass mover/wire, so the point meets another one",
	"H6 two pages are swapped on their way":                          "each page says its place: the order in which they come means nothing",
	"H6 two messages are swapped on the wire":                        "fewer messages pass mover/wire, so none is left to be swapped with",
	"H6 a page of another tenant is sent":                            "its request is held at mover/wire between pages, which do not pass there",
	"L5 the source lease expires before the last word":               "held at mover/wire between pages",
	"L7 cancelled before the pages are said to be sent":              "held at mover/wire between pages",
	"L4 prefill's broker is restarted":                               "the new broker is not ready before its new mover process is, for which the scenario does not wait",
	"L11 a page of prefill's broker is written after it was cleared": "as L4",
	"L3 decode is killed while it reads":                             "not looked into yet",
}

// WriteModel makes the canary model, over which the scenarios here run.
func WriteModel(dir string) (string, error) {
	data, err := canary.File(4096)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "canary.gguf")
	return path, os.WriteFile(path, data, 0o600)
}

// All runs the whole table and returns how many results there were, and how many were not as they must be.
func All(ctx context.Context, s scenario.Setup, cases []Case, say func(string, ...any)) (ran, failed int, rows map[string]int, err error) {
	dir, err := os.MkdirTemp("", "leasehold-catalogue")
	if err != nil {
		return 0, 0, nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if s.Model, err = WriteModel(dir); err != nil {
		return 0, 0, nil, err
	}
	s.Cache = dir
	rows = map[string]int{}
	Run(ctx, s, cases, func(r Result) {
		ran++
		rows[r.Row]++
		if r.Err != nil {
			failed++
		}
		say("%v", r)
	})
	if ran == 0 {
		return 0, 0, nil, fmt.Errorf("no case ran")
	}
	return ran, failed, rows, nil
}

// Missing is the rows without a scenario, and why.
func Missing() map[string]string { return maps.Clone(missing) }
