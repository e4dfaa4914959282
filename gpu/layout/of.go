package layout

import (
	"leasehold.dev/model"
	"leasehold.dev/protos/errs"
)

// Of is the layout that a back end uses for a model.
func Of(cfg model.Config, backend string) (Layout, error) {
	l := Layout{Layers: cfg.Layers, KVHeads: cfg.KVHeads, HeadDim: cfg.HeadDim}
	switch backend {
	case CPU:
		l.Order = Pair
	case Ref:
	case RefF32:
		l.DType = F32
	default:
		return Layout{}, errs.New(errs.Invalid, "layout: back end %q is none of %s, %s, %s", backend, CPU, Ref, RefF32)
	}
	return l, l.Check()
}

// FromFile reads a model file and gives what a broker must know of it: the layout, and the revisions of the weights and
// of the tokenizer.
func FromFile(path, backend string) (l Layout, revision, tokenizerRevision [32]byte, err error) {
	m, err := model.Load(path)
	if err != nil {
		return Layout{}, revision, tokenizerRevision, err
	}
	defer m.Close()
	l, err = Of(m.Config, backend)
	return l, m.Revision, m.TokenizerRevision, err
}
