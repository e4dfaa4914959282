//go:build !cgo

package engine

import (
	"leasehold.dev/gpu/layout"
	"leasehold.dev/gpu/pool"
	"leasehold.dev/model"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/pagesum"
)

var errNoCgo = errs.New(errs.Unavailable,
	"engine: this binary was built without cgo and has no back end: build with CGO_ENABLED=1 and a C++17 compiler")

// Engine cannot be made without cgo.
type Engine struct{}

// Pool cannot be made without cgo.
type Pool struct{}

// SIMDs is empty without cgo.
func SIMDs() []string { return nil }

// Open says what is missing.
func Open(*model.Model, Options) (*Engine, error) { return nil, errNoCgo }

func (*Engine) Layout() layout.Layout               { return layout.Layout{} }
func (*Engine) NumericsClass() string               { return "" }
func (*Engine) SIMD() string                        { return "" }
func (*Engine) Keys() *pagesum.Keys                 { return nil }
func (*Engine) Close()                              {}
func (*Engine) Attach(*pool.Mapping) (*Pool, error) { return nil, errNoCgo }
func (*Engine) CloseSeq(SeqID) error                { return errNoCgo }
func (*Engine) GuardSeq(SeqID) error                { return errNoCgo }
func (*Engine) Step([]Work) (*Step, error)          { return nil, errNoCgo }
func (*Pool) Close() error                          { return errNoCgo }
func (*Pool) OpenSeq(uint32, []uint32, []pool.Tag, *pagesum.Digest) (SeqID, error) {
	return 0, errNoCgo
}

func pageSum(l layout.Layout, page, copied []byte, rows uint32, k *pagesum.Keys) (pagesum.Digest, uint32, error) {
	d, n := gatherSum(l, arrived(page, copied), rows, k)
	return d, n, nil
}
