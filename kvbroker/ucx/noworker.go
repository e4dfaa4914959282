//go:build !ucx || !cgo

package ucx

import (
	"time"

	"leasehold.dev/protos/errs"
)

// Built says whether UCX is in this program.
const Built = false

// worker is never made.
type worker struct{}

// Missing says what this program lacks to open a Mover.
func Missing() error {
	return errs.New(errs.Unavailable, "built without ucx: build with -tags ucx, and libucx-dev installed")
}

func newWorker([]byte, uint64, []string) (*worker, error) { return nil, Missing() }

func (*worker) address() (string, error)               { return "", nil }
func (*worker) open(string) int64                      { return -1 }
func (*worker) submit(list []command) int              { return len(list) }
func (*worker) poll(int) int                           { return 0 }
func (*worker) tell(int, *core, func(int64) *endpoint) {}
func (*worker) wait(time.Duration)                     {}
func (*worker) signal()                                {}
func (*worker) free() int                              { return 0 }

func statusText(int32) string { return "" }
