//go:build cgo

package engine_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/gpu/layout"
	"leasehold.dev/gpu/tinymodel"
	"leasehold.dev/model"
)

// backends are all that this machine can run.
func backends() (all []engine.Options) {
	all = []engine.Options{{Backend: layout.Ref}, {Backend: layout.RefF32}}
	for _, simd := range engine.SIMDs() {
		all = append(all, engine.Options{Backend: layout.CPU, SIMD: simd})
	}
	return all
}

// eachBackend runs f on a two-layer model for every back end.
func eachBackend(t *testing.T, f func(t *testing.T, m *model.Model, o engine.Options)) {
	each(t, backends(), f)
}

// eachCPU is eachBackend for the paths of the cpu back end alone.
func eachCPU(t *testing.T, f func(t *testing.T, m *model.Model, o engine.Options)) {
	each(t, slices.DeleteFunc(backends(), func(o engine.Options) bool { return o.Backend != layout.CPU }), f)
}

func each(t *testing.T, backends []engine.Options, f func(t *testing.T, m *model.Model, o engine.Options)) {
	m := tinymodel.Load(t, tinymodel.Options{})
	for _, o := range backends {
		o.Threads = 2
		t.Run(o.Backend+o.SIMD, func(t *testing.T) { f(t, m, o) })
	}
}

// prompt is n tokens, always the same for a seed.
func prompt(seed uint64, n int) (ids []int32) {
	rng := rand.New(rand.NewPCG(seed, 7))
	for range n {
		ids = append(ids, rng.Int32N(49152))
	}
	return ids
}
