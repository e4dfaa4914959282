package bar

import "leasehold.dev/integration/scenario"

// All is every bar, the quick ones first.
var All = []Bar{
	{Name: "golden", Quick: true, Run: runGolden},
	{Name: "refusals", Quick: true, Run: scenarios(scenario.Refusals)},
	{Name: "demo", Quick: true, Run: runDemo},
	{Name: "bench-lease", Quick: true, Run: runBenchLease},
	{Name: "explore", Run: runExplore},
	{Name: "replay", Run: runReplay},
	{Name: "canary", Run: runCanary},
	{Name: "failures", Run: runFailures},
	{Name: "faults", Run: runFaults},
	{Name: "guard-matrix", Run: runGuardMatrix},
	{Name: "incident", Run: runIncident},
	{Name: "fuzz", Run: runFuzz},
	{Name: "soak", Run: runSoak},
	{Name: "split-equal", Run: runSplitEqual},
	{Name: "bench-engine", Run: runBenchEngine},
	{Name: "bench-guards", Run: runBenchGuards},
	{Name: "bench-transfer", Run: runBenchTransfer},
	{Name: "bench-ttft", Run: runBenchTTFT},
	{Name: "steady", Run: scenarios(scenario.Steady)},
}
