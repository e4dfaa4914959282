//go:build !faults

package runner

// misplan does nothing in a release build.
func (*Runner) misplan() {}
