//go:build faults

package client

// ProbeEvery is 0 here: each request asks for what must be refused, so that each scenario shows whether it is.
const ProbeEvery = 0
