//go:build cgo && !faults

package engine

// faultyStep does nothing in a release build.
func faultyStep() {}
