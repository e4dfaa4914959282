//go:build !faults

package client

import "time"

// ProbeEvery is how often a worker that has requests asks its broker for what must be refused, at most.
const ProbeEvery = time.Minute
